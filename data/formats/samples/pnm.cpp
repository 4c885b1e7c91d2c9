#include "tern/data/formats/samples/pnm.h"

#include <charconv>
#include <string>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"

namespace tern {
namespace {

bool is_blank(uint8_t byte) {
  return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/// Reads the numbers of a header, starting after its "P5".
class Numbers {
 public:
  Numbers(std::span<const uint8_t> bytes, std::string_view path)
      : bytes_(bytes), path_(path) {}

  int64_t next() {
    while (at_ < bytes_.size() &&
           (is_blank(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {  // a comment, up to the end of its line
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
      } else {
        ++at_;
      }
    }
    if (at_ == bytes_.size()) {
      fail("is truncated: the PNM file ends within its header");
    }
    const std::string_view text = as_text(bytes_.subspan(at_));
    int32_t number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 1) {
      fail(
          "is a damaged PNM file: expected a number in its header, not '" +
          std::string(text.substr(0, 8)) + "'");
    }
    at_ += static_cast<size_t>(end - text.data());
    return number;
  }

  /// Returns the data after the blank that follows the last number.
  std::span<const uint8_t> rest() const {
    if (at_ == bytes_.size() || !is_blank(bytes_[at_])) {
      fail("is a damaged PNM file: its header is not followed by whitespace");
    }
    return bytes_.subspan(at_ + 1);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(std::string(path_), what + ". Replace it or remove it.");
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string_view path_;
  size_t at_ = 2;
};

}  // namespace

bool is_pnm(std::span<const uint8_t> bytes) {
  return bytes.size() > 2 && bytes[0] == 'P' &&
         (bytes[1] == '5' || bytes[1] == '6') &&
         (is_blank(bytes[2]) || bytes[2] == '#');
}

PnmFile parse_pnm(std::span<const uint8_t> bytes, std::string_view path) {
  if (!is_pnm(bytes)) {
    throw DataError(std::string(path), "is not a binary PGM or PPM file.");
  }
  Numbers numbers(bytes, path);
  PnmFile file;
  file.channels = bytes[1] == '6' ? 3 : 1;
  file.width = numbers.next();
  file.height = numbers.next();
  const int64_t white = numbers.next();
  if (white != 255 && white != 65535) {
    throw DataError(
        std::string(path),
        "is a PNM file with the maxval " + std::to_string(white) +
            "; expected 255 or 65535. Convert it to PNG.");
  }
  file.bytes_per_value = white == 255 ? 1 : 2;
  file.pixels = numbers.rest();
  const auto values =
      static_cast<int64_t>(file.pixels.size()) / file.bytes_per_value;
  if (values / file.channels / file.width < file.height) {
    numbers.fail(
        "is truncated: the PNM file has fewer pixels than its header says");
  }
  return file;
}

}  // namespace tern
