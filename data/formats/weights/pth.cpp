#include "tern/data/formats/weights/pth.h"

#include <algorithm>
#include <array>

#include "tern/data/formats/archives/zip_archive.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"

namespace tern {

namespace {

using Kind = Pickle::Kind;

// Much more than the names and sizes of any model require.
constexpr uint64_t kMaxPickle = uint64_t{64} << 20;

// ---- The zip format, since PyTorch 1.6 ----

// Returns "archive/" if the entries are "archive/data.pkl", "archive/data/0",
// ...
std::string folder_of(const ZipArchive& zip, const std::string& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::string folder;
  for (const auto& [name, entry] : zip.entries()) {
    if (name.ends_with("/constants.pkl") || name == "constants.pkl") {
      throw DataError(
          path,
          "is a TorchScript file, which can only be loaded by running its "
          "code. Save the module's state_dict() instead.");
    }
    if (!name.ends_with(kPickle) ||
        std::count(name.begin(), name.end(), '/') != 1) {
      continue;
    }
    if (!folder.empty())
      throw DataError(path, "has two data.pkl entries; expected one.");
    folder = name.substr(0, name.size() - kPickle.size() + 1);
  }
  if (folder.empty()) {
    throw DataError(
        path,
        "is a zip archive without data.pkl; expected a file written by "
        "torch.save.");
  }
  return folder;
}

StoredWeights read_zip(const ByteFile& file, const std::string& key) {
  const std::string& path = file.path();
  const ZipArchive zip(file);
  const std::string folder = folder_of(zip, path);
  if (zip.find(folder + "byteorder") != nullptr) {
    const auto order = zip.read(folder + "byteorder", 16);
    if (as_text(order) != "little") {
      throw DataError(
          path,
          "was saved on a big-endian machine. Save it again on a little-endian "
          "one.");
    }
  }
  const auto bytes = zip.read(folder + "data.pkl", kMaxPickle);
  const Pickle pickle = parse_pickle(bytes, is_torch_name, path);

  StoredWeights weights;
  StorageIndex index;
  for (const auto& [name, ref] : storages_in(pickle, path)) {
    const std::string entry_name = folder + "data/" + std::string(name);
    const ZipEntry* entry = zip.find(entry_name);
    if (entry == nullptr || entry->size != ref.size) {
      throw DataError(
          path,
          (entry == nullptr ? "does not have the entry "
                            : "has different sizes in data.pkl and in the zip "
                              "archive for the entry ") +
              entry_name + ". The file is damaged.");
    }
    index[name] = weights.storages.size();
    weights.storages.push_back({entry->begin, entry->size, entry->crc32});
  }
  weights.tensors = state_dict_in(pickle, key, index, weights.storages, path);
  return weights;
}

// ---- The legacy format: five pickles, then the storages ----

// The integer 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kProtocol = 1001;

// The pickles at the start of a legacy file.
struct LegacyHead {
  Pickle object, keys;
  uint64_t size = 0;
};

LegacyHead parse_head(std::span<const uint8_t> bytes, const std::string& path) {
  LegacyHead head;
  const auto next = [&](bool (*is_allowed)(std::string_view) = nullptr) {
    Pickle pickle = parse_pickle(bytes.subspan(head.size), is_allowed, path);
    head.size += pickle.size();
    return pickle;
  };
  const auto expect = [&](bool is_so, const char* what) {
    if (!is_so) throw DataError(path, what);
  };
  const Pickle magic = next();
  expect(
      magic.root().kind == Kind::big_integer && magic.root().text == kMagic,
      "is a Python pickle, but was not written by torch.save; expected a state "
      "dict.");
  const Pickle protocol = next();
  expect(
      protocol.root().kind == Kind::integer &&
          protocol.root().integer == kProtocol,
      "has an unknown version of torch.save's legacy format.");
  const Pickle system = next();
  const Pickle::Value* little = system.find(system.root(), "little_endian");
  expect(
      little != nullptr && little->integer != 0,
      "was saved on a big-endian machine. Save it again on a little-endian "
      "one.");
  head.object = next(is_torch_name);
  head.keys = next();
  expect(
      head.keys.root().kind == Kind::list,
      "has no list of storages. The file is damaged.");
  return head;
}

StoredWeights read_legacy(const ByteFile& file, const std::string& key) {
  const std::string& path = file.path();
  // The length of the pickles is known only after parsing.
  const auto bytes = file.read(0, std::min(kMaxPickle, file.size()));
  const LegacyHead head = parse_head(bytes, path);
  const auto refs = storages_in(head.object, path);
  StoredWeights weights;
  StorageIndex index;
  uint64_t at = head.size;
  for (const Pickle::Id id : head.keys.root().items) {
    const Pickle::Value& name = head.keys[id];
    const auto ref = refs.find(name.text);
    if (name.kind != Kind::string || ref == refs.end() ||
        !index.emplace(ref->first, weights.storages.size()).second) {
      throw DataError(
          path,
          "lists a storage that no tensor uses, or lists one twice.");
    }
    // The number of elements, then the elements.
    const auto count = file.read(at, 8);
    const uint64_t size = ref->second.size;
    if (load_le64(count.data()) != size / ref->second.element_bytes) {
      throw DataError(
          path,
          "has a storage whose size differs from its header. The file is "
          "damaged.");
    }
    at += 8;
    if (size > file.size() - at) {
      throw DataError(
          path,
          "ends within the storages of its tensors. The file is truncated.");
    }
    weights.storages.push_back({at, size, std::nullopt});
    at += size;
  }
  if (at != file.size()) {
    throw DataError(
        path,
        "continues for " + std::to_string(file.size() - at) +
            " bytes after its last tensor. The file is damaged.");
  }
  weights.tensors =
      state_dict_in(head.object, key, index, weights.storages, path);
  return weights;
}

bool is_pickle(const ByteFile& file) {
  std::array<uint8_t, 2> head{};
  if (file.size() < head.size()) return false;
  file.read(0, head);
  return head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

}  // namespace

bool is_pth(const ByteFile& file) {
  return ZipArchive::is_zip(file) || is_pickle(file);
}

StoredWeights read_pth(const ByteFile& file, const std::string& key) {
  return ZipArchive::is_zip(file) ? read_zip(file, key)
                                  : read_legacy(file, key);
}

}  // namespace tern
