#include "tern/data/formats/samples/npy.h"

#include <algorithm>
#include <string_view>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy writes less than 1 KB and rejects 10 KB.
constexpr size_t kMaxHeader = 10'000;

// The header is a Python dictionary, such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// which is JSON with other brackets and keywords.
std::string as_json(std::string_view python) {
  std::string json;
  for (; !python.empty(); python.remove_prefix(1)) {
    const char c = python[0];
    const size_t next = python.find_first_not_of(" \n", 1);
    const char after = next == python.npos ? '\0' : python[next];
    if (c == ',' && (after == ')' || after == '}')) continue;
    if (c == 'F' || c == 'T') {  // False or True
      json += c == 'F' ? 'f' : 't';
    } else {
      json += c == '\'' ? '"' : c == '(' ? '[' : c == ')' ? ']' : c;
    }
  }
  return json;
}

// Parses "<f4", or "|u1" for one byte.
bool read_type(const std::string& type, NpyArray& array) {
  constexpr std::string_view kKnown =
      " b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ";
  const std::string name(type.substr(std::min<size_t>(1, type.size())));
  const bool is_little =
      type.starts_with('<') || (type.starts_with('|') && name.ends_with('1'));
  if (!is_little || name.size() < 2 || name.find(' ') != name.npos ||
      kKnown.find(' ' + name + ' ') == kKnown.npos) {
    return false;
  }
  array.kind = name[0];
  array.item_bytes = name == "c16" ? 16 : name[1] - '0';
  return true;
}

bool read_header(std::string_view text, NpyArray& array) {
  std::string type;
  bool is_fortran = true;
  array.shape = {-1};
  try {
    read_json(
        as_json(text),
        {{"descr", &type},
         {"fortran_order", &is_fortran},
         {"shape", &array.shape}},
        "");
  } catch (const DataError&) {
    return false;
  }
  return !is_fortran && read_type(type, array) && array.shape.size() <= 32 &&
         element_count(array.shape).has_value();
}

}  // namespace

NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& path) {
  if (bytes.size() < 10 || !as_text(bytes).starts_with(kMagic)) {
    throw DataError(
        path,
        "is not a .npy file; expected a file written by numpy.save.");
  }
  const bool is_first_version = bytes[6] == 1;
  const size_t begin = is_first_version ? 10 : 12;
  if (bytes[6] < 1 || bytes[6] > 3 || bytes.size() < begin) {
    throw DataError(
        path,
        "is a .npy file of version " + std::to_string(bytes[6]) +
            ", or truncated; expected version 1, 2 or 3.");
  }
  const size_t size =
      is_first_version ? load_le16(&bytes[8]) : load_le32(&bytes[8]);
  if (size > kMaxHeader || size > bytes.size() - begin) {
    throw DataError(
        path,
        "is a .npy file with a header of " + std::to_string(size) +
            " bytes. The file is truncated or damaged. Save it again.");
  }
  NpyArray array;
  const std::string_view header = as_text(bytes.subspan(begin, size));
  if (!read_header(header, array)) {
    throw DataError(
        path,
        "is a .npy file with the header " + printable(header) +
            "; expected a plain array of little-endian numbers in C order, "
            "such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, "
            "4)}. Save it with numpy.save, as a plain array.");
  }
  array.values = bytes.subspan(begin + size);
  const int64_t expected = *element_count(array.shape) * array.item_bytes;
  if (expected != static_cast<int64_t>(array.values.size())) {
    throw DataError(
        path,
        "is a .npy file with " + std::to_string(array.values.size()) +
            " bytes of values; its header expects " + std::to_string(expected) +
            ". The file is truncated or damaged. Save it again.");
  }
  return array;
}

}  // namespace tern
