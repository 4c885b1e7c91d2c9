#include "tern/data/formats/npy.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "tern/data/formats/error.h"
#include "tern/data/formats/load_bytes.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/stored_tensor.h"

namespace tern {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// What NumPy itself writes is below 1 KB; it refuses 10 KB.
constexpr size_t kMaxHeader = 10'000;

// The header is a Python dictionary with three entries, such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& path)
      : text_(text), path_(path) {}

  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail("has no " + printable(token) + " in its place");
  }

  std::string_view quoted() {
    skip_spaces();
    const char quote = text_.empty() ? '\0' : text_[0];
    if (quote != '\'' && quote != '"') fail("has no name in its place");
    const size_t end = text_.find(quote, 1);
    if (end == text_.npos) fail("has a name without an end");
    const std::string_view name = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return name;
  }

  std::optional<int64_t> number() {
    skip_spaces();
    int64_t value = 0;
    size_t digits = 0;
    for (;
         digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9';
         ++digits) {
      if (digits == 15) fail("has a size that is too large");
      value = value * 10 + (text_[digits] - '0');
    }
    text_.remove_prefix(digits);
    return digits > 0 ? std::optional(value) : std::nullopt;
  }

  bool is_at_end() {
    skip_spaces();
    return text_.empty();
  }

  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(
        path_,
        "is a .npy file whose header " + fault +
            ". Write it with numpy.save, as a plain array");
  }

 private:
  void skip_spaces() {
    const size_t begin = text_.find_first_not_of(" \n");
    text_.remove_prefix(std::min(begin, text_.size()));
  }

  std::string_view text_;
  const std::string& path_;
};

void read_type(HeaderText& header, NpyArray& array) {
  const std::string_view type = header.quoted();  // "<f4"
  constexpr std::string_view kKnown =
      " b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ";
  const std::string name(type.substr(std::min<size_t>(1, type.size())));
  const bool is_little =
      type.starts_with('<') || (type.starts_with('|') && name.ends_with('1'));
  if (!is_little || name.size() < 2 || name.find(' ') != name.npos ||
      kKnown.find(' ' + name + ' ') == kKnown.npos) {
    header.fail(
        "has the type " + printable(type) +
        "; expected little-endian numbers, such as '<f4'");
  }
  array.kind = name[0];
  array.item_bytes = name == "c16" ? 16 : name[1] - '0';
}

void read_shape(HeaderText& header, NpyArray& array) {
  header.expect("(");
  while (const auto size = header.number()) {
    array.shape.push_back(*size);
    if (array.shape.size() > 32) header.fail("has more than 32 dimensions");
    if (!header.take(",")) break;
  }
  header.expect(")");
}

void read_header(HeaderText header, NpyArray& array) {
  bool has_type = false, has_order = false, has_shape = false;
  header.expect("{");
  while (!header.take("}")) {
    const std::string_view key = header.quoted();
    header.expect(":");
    if (key == "descr" && !has_type) {
      read_type(header, array);
      has_type = true;
    } else if (key == "fortran_order" && !has_order) {
      if (!header.take("False")) {
        header.fail("says Fortran's order; expected the last index fastest");
      }
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      read_shape(header, array);
      has_shape = true;
    } else {
      header.fail("has " + printable(key) + ", unknown or twice");
    }
    if (!header.take(",")) {
      header.expect("}");
      break;
    }
  }
  if (!has_type || !has_order || !has_shape || !header.is_at_end()) {
    header.fail("lacks the type, the order or the shape, or goes on after it");
  }
}

}  // namespace

NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& path) {
  if (bytes.size() < 10 ||
      !std::equal(
          kMagic.begin(),
          kMagic.end(),
          bytes.begin(),
          [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
    throw DataError(
        path,
        "is no .npy file; expected one that numpy.save has written");
  }
  const bool is_first_version = bytes[6] == 1;
  const size_t begin = is_first_version ? 10 : 12;
  if (bytes[6] < 1 || bytes[6] > 3 || bytes.size() < begin) {
    throw DataError(
        path,
        "is a .npy file of version " + std::to_string(bytes[6]) +
            ", or cut off; expected version 1, 2 or 3");
  }
  const size_t size =
      is_first_version ? load_le16(&bytes[8]) : load_le32(&bytes[8]);
  if (size > kMaxHeader || size > bytes.size() - begin) {
    throw DataError(
        path,
        "is a .npy file with a header of " + std::to_string(size) +
            " bytes; it is cut off or damaged. Write it again");
  }
  NpyArray array;
  const auto* text = reinterpret_cast<const char*>(bytes.data() + begin);
  read_header(HeaderText({text, size}, path), array);

  array.values = bytes.subspan(begin + size);
  const auto count = element_count(array.shape);
  if (!count ||
      static_cast<uint64_t>(*count) * array.item_bytes != array.values.size()) {
    throw DataError(
        path,
        "is a .npy file with " + std::to_string(array.values.size()) +
            " bytes of values, which are not as many as its shape says; it is "
            "cut off or damaged. Write it again");
  }
  return array;
}

}  // namespace tern
