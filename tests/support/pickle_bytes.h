#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// Writes pickles by hand, also such as Python would not.
///
///   PickleBytes().op('}').string("a").integer(1).op('s').finish()   // {"a":
///   1}
struct PickleBytes {
  std::string bytes = "\x80\x02";

  PickleBytes& op(uint8_t code) {
    bytes += static_cast<char>(code);
    return *this;
  }
  PickleBytes& number(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) op(static_cast<uint8_t>(value >> (8 * i)));
    return *this;
  }
  PickleBytes& integer(int64_t value) {
    return op(0x8a).number(8, 1).number(static_cast<uint64_t>(value), 8);
  }
  PickleBytes& string(std::string_view text) {
    op('X').number(text.size(), 4);
    bytes += text;
    return *this;
  }
  PickleBytes& global(const std::string& module, const std::string& name) {
    op('c');
    bytes += module + "\n" + name + "\n";
    return *this;
  }
  PickleBytes& tuple(const std::vector<int64_t>& values) {
    op('(');
    for (const int64_t value : values) integer(value);
    return op('t');
  }
  /// What torch.save writes for a storage of the legacy format.
  PickleBytes& storage(
      const std::string& key,
      int64_t elements,
      const std::string& type = "FloatStorage") {
    op('(').string("storage").global("torch", type).string(key).string("cpu");
    return integer(elements).op('N').op('t').op('Q');
  }
  /// A tensor as a view of a storage.
  PickleBytes& tensor(
      const std::string& key,
      int64_t elements,
      int64_t offset,
      const std::vector<int64_t>& shape,
      const std::vector<int64_t>& strides,
      const std::string& type = "FloatStorage") {
    global("torch._utils", "_rebuild_tensor_v2").op('(');
    storage(key, elements, type).integer(offset).tuple(shape).tuple(strides);
    op(0x89).global("collections", "OrderedDict").op(')').op('R');
    return op('t').op('R');
  }
  std::string finish() { return bytes + "."; }
};

/// A file of torch.save's legacy format: a pickle of an object, and storages
/// with these numbers of floats, by the keys "0", "1", ...
inline std::string legacy_file(
    const std::string& object,
    const std::vector<int64_t>& floats) {
  std::string file("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);
  file += PickleBytes().integer(1001).finish();
  file +=
      PickleBytes().op('}').string("little_endian").op(0x88).op('s').finish();
  file += object;
  PickleBytes keys, storages;
  keys.op(']');
  storages.bytes.clear();
  for (size_t i = 0; i < floats.size(); ++i) {
    keys.string(std::to_string(i)).op('a');
    storages.number(static_cast<uint64_t>(floats[i]), 8);
    storages.bytes += std::string(static_cast<size_t>(floats[i]) * 4, '\0');
  }
  return file + keys.finish() + storages.bytes;
}

}  // namespace tern
