#include "tern/data/formats/samples/image_header.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/png.h"
#include "tern/data/formats/text.h"

namespace tern {
namespace {

using Bytes = std::span<const uint8_t>;
using namespace std::string_view_literals;

bool has_text(Bytes bytes, size_t offset, std::string_view text) {
  return bytes.size() >= offset &&
         as_text(bytes.subspan(offset)).starts_with(text);
}

uint32_t load_le24(const uint8_t* bytes) {
  return load_le16(bytes) | static_cast<uint32_t>(bytes[2]) << 16;
}

/// The tags of the first directory of a TIFF structure: a TIFF file, or the
/// EXIF block of another image format. BigTIFF is none.
class TiffTags {
 public:
  static constexpr uint16_t kWidth = 256, kHeight = 257;
  static constexpr uint16_t kOrientation = 274, kSamplesPerPixel = 277;
  static constexpr uint16_t kExtraSamples = 338, kSampleFormat = 339;

  explicit TiffTags(Bytes bytes)
      : bytes_(bytes), is_big_endian_(has_text(bytes, 0, "MM\0*"sv)) {
    is_tiff_ = bytes.size() >= kHeaderBytes &&
               (is_big_endian_ || has_text(bytes, 0, "II*\0"sv));
    if (!is_tiff_) return;
    const size_t directory = load32(4);
    if (directory < kHeaderBytes || directory > bytes.size() ||
        bytes.size() - directory < 2) {
      return;
    }
    entries_ = directory + 2;
    count_ = std::min<size_t>(
        load16(directory),
        (bytes.size() - entries_) / kEntryBytes);
  }

  /// Whether the bytes start as a TIFF does.
  bool is_tiff() const { return is_tiff_; }

  /// Where the first value of a tag of type BYTE, SHORT or LONG stands; of 0
  /// bytes if it is absent, of another type or outside the bytes.
  struct Place {
    size_t at = 0, bytes = 0;
  };
  Place find(uint16_t tag) const {
    for (size_t i = 0; i < count_; ++i) {
      const size_t entry = entries_ + i * kEntryBytes;
      if (load16(entry) != tag) continue;
      const uint32_t type = load16(entry + 2);  // 1 BYTE, 3 SHORT, 4 LONG
      const size_t size = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
      const uint64_t total = uint64_t{size} * load32(entry + 4);
      if (total == 0) return {};
      // Up to four bytes stand in the entry itself, more somewhere else.
      const size_t at = total <= 4 ? entry + 8 : load32(entry + 8);
      if (at > bytes_.size() || bytes_.size() - at < size) return {};
      return {at, size};
    }
    return {};
  }

  /// That value, or `otherwise`.
  uint32_t value(uint16_t tag, uint32_t otherwise) const {
    const auto [at, size] = find(tag);
    if (size == 0) return otherwise;
    return size == 1 ? bytes_[at] : size == 2 ? load16(at) : load32(at);
  }

  /// Makes the value of a tag 1 in a copy of the bytes, if it is another.
  void set_to_one(uint16_t tag, std::vector<uint8_t>& copy) const {
    if (value(tag, 1) == 1) return;
    if (copy.empty()) copy.assign(bytes_.begin(), bytes_.end());
    const auto [at, size] = find(tag);
    std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(at), size, 0);
    copy[is_big_endian_ ? at + size - 1 : at] = 1;
  }

  int orientation() const {
    const uint32_t orientation = value(kOrientation, 1);
    return orientation - 1 < 8 ? static_cast<int>(orientation) : 1;
  }

 private:
  static constexpr size_t kHeaderBytes = 8, kEntryBytes = 12;

  uint32_t load16(size_t offset) const {
    const uint8_t* at = bytes_.data() + offset;
    return is_big_endian_ ? load_be16(at) : load_le16(at);
  }
  uint32_t load32(size_t offset) const {
    const uint8_t* at = bytes_.data() + offset;
    return is_big_endian_ ? load_be32(at) : load_le32(at);
  }

  Bytes bytes_;
  bool is_big_endian_, is_tiff_ = false;
  size_t entries_ = 0;  // offset of the first entry
  size_t count_ = 0;    // entries that lie inside the bytes
};

struct HeaderReader {
  Bytes bytes;
  std::string_view path;
  ImageHeader header = {};

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(std::string(path), reason);
  }
  [[noreturn]] void fail_truncated() const {
    fail(
        std::string("is truncated: the ") + to_string(header.format) +
        " file ends within its header. Copy the file again or remove it.");
  }
  [[noreturn]] void fail_damaged(const std::string& what) const {
    fail(
        std::string("is a damaged ") + to_string(header.format) +
        " file: " + what + ". Copy the file again or remove it.");
  }
  std::string size_text() const {
    return std::to_string(header.width) + " x " + std::to_string(header.height);
  }

  /// Walks the segments up to the frame header (ITU-T T.81, annex B).
  void read_jpeg() {
    size_t at = 2;
    while (bytes.size() - at >= 4) {
      if (bytes[at] != 0xff) fail_damaged("a segment has no marker");
      const uint8_t marker = bytes[at + 1];
      if (marker == 0xff) {  // a fill byte
        ++at;
        continue;
      }
      if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
        at += 2;  // markers without a segment
        continue;
      }
      const size_t length = load_be16(bytes.data() + at + 2);
      if (length < 2) fail_damaged("a segment has no length");
      if (length > bytes.size() - at - 2) break;
      const Bytes segment = bytes.subspan(at + 4, length - 2);
      const bool is_frame = marker >= 0xc0 && marker <= 0xcf &&
                            marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
      if (is_frame) {
        if (segment.size() < 6) fail_damaged("the frame header is too short");
        header.height = load_be16(segment.data() + 1);
        header.width = load_be16(segment.data() + 3);
        header.channels = segment[5];
        return;
      }
      if (marker == 0xd9 || marker == 0xda) {
        fail_damaged("it has no frame header");
      }
      if (marker == 0xe1 && has_text(segment, 0, "Exif\0\0"sv)) {
        header.orientation = exif_orientation(segment.subspan(6));
      }
      at += 2 + length;
    }
    fail_truncated();
  }

  void read_png() {
    PngChunks chunks(bytes);
    const std::optional<PngChunk> first = chunks.next();
    if (!first) fail_truncated();
    if (first->type != png_type("IHDR") || first->data.size() != 13) {
      fail_damaged("it does not start with IHDR");
    }
    const uint8_t* ihdr = first->data.data();
    header.width = load_be32(ihdr);
    header.height = load_be32(ihdr + 4);
    constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
    header.channels = ihdr[9] < 7 ? kChannels[ihdr[9]] : 0;
    while (const std::optional<PngChunk> chunk = chunks.next()) {
      if (chunk->type == png_type("eXIf")) {
        header.orientation = exif_orientation(chunk->data);
      }
    }
  }

  /// Walks the chunks of an extended WebP file up to its EXIF.
  void read_webp_orientation() {
    size_t at = 12;
    while (at <= bytes.size() && bytes.size() - at >= 8) {
      const size_t length = load_le32(bytes.data() + at + 4);
      if (length > bytes.size() - at - 8) return;
      if (has_text(bytes, at, "EXIF")) {
        const Bytes exif = bytes.subspan(at + 8, length);
        const bool has_prefix = has_text(exif, 0, "Exif\0\0"sv);
        header.orientation = exif_orientation(exif.subspan(has_prefix ? 6 : 0));
        return;
      }
      at += 8 + length + (length & 1);
    }
  }

  void read_webp() {
    const bool is_lossless = has_text(bytes, 12, "VP8L");
    if (bytes.size() < (is_lossless ? 25 : 30)) fail_truncated();
    if (load_le32(bytes.data() + 4) > bytes.size() - 8) {
      fail(
          "is truncated: the WebP file says that it has " +
          std::to_string(uint64_t{8} + load_le32(bytes.data() + 4)) +
          " bytes, but it has " + std::to_string(bytes.size()) +
          ". Copy the file again or remove it.");
    }
    const uint8_t* data = bytes.data() + 20;
    header.channels = 3;
    if (has_text(bytes, 12, "VP8X")) {
      if ((data[0] & 2) != 0) {
        fail("is an animated WebP file; save one frame of it instead.");
      }
      header.channels = (data[0] & 16) != 0 ? 4 : 3;
      header.width = load_le24(data + 4) + 1;
      header.height = load_le24(data + 7) + 1;
      read_webp_orientation();
    } else if (is_lossless && data[0] == 0x2f) {
      const uint32_t bits = load_le32(data + 1);
      header.width = (bits & 0x3fff) + 1;
      header.height = (bits >> 14 & 0x3fff) + 1;
      header.channels = (bits >> 28 & 1) != 0 ? 4 : 3;
    } else if (
        has_text(bytes, 12, "VP8 ") && has_text(bytes, 23, "\x9d\x01*")) {
      header.width = load_le16(data + 6) & 0x3fff;
      header.height = load_le16(data + 8) & 0x3fff;
    } else {
      fail_damaged("it does not start with an image chunk");
    }
  }

  void read_bmp() {
    if (bytes.size() < 34) fail_truncated();
    const uint8_t* info = bytes.data() + 14;
    int bits = 0;
    bool is_plain = true;  // pixels as they are, neither run lengths nor JPEG
    if (load_le32(info) == 12) {
      header.width = load_le16(info + 4);
      header.height = load_le16(info + 6);
      bits = load_le16(info + 10);
    } else {
      // Signed, because rows from top to bottom have a negative height.
      header.width = static_cast<int32_t>(load_le32(info + 4));
      const auto height = static_cast<int32_t>(load_le32(info + 8));
      header.height = height < 0 ? -int64_t{height} : height;
      bits = load_le16(info + 14);
      is_plain = load_le32(info + 16) == 0 || load_le32(info + 16) == 3;
    }
    header.channels = bits == 32 ? 4 : bits >= 16 ? 3 : 1;
    if (bits > 32) fail_damaged("a pixel has more than 32 bits");
    if (!is_plain || header.width <= 0 || header.height <= 0) return;
    const uint64_t start = load_le32(bytes.data() + 10);
    const uint64_t row = (static_cast<uint64_t>(header.width) * bits + 31) / 32;
    const uint64_t there =
        bytes.size() - std::min<uint64_t>(start, bytes.size());
    if (row * 4 > there / header.height) {
      fail(
          "is truncated: the BMP file has " + std::to_string(there) +
          " bytes of pixels for " + size_text() +
          " pixels. Copy the file again or remove it.");
    }
  }

  void read_tiff() {
    const TiffTags tags(bytes);
    if (!tags.is_tiff()) fail_truncated();
    header.width = tags.value(TiffTags::kWidth, 0);
    header.height = tags.value(TiffTags::kHeight, 0);
    header.channels =
        static_cast<int>(tags.value(TiffTags::kSamplesPerPixel, 1));
    header.orientation = tags.orientation();
    if (tags.value(TiffTags::kSampleFormat, 1) != 1) {
      fail(
          "is a TIFF file of floating-point or signed numbers, whose range "
          "Tern cannot know; save it with 8 or 16 bits.");
    }
  }

  void read_gif() {
    if (bytes.size() < 10) fail_truncated();
    header.width = load_le16(bytes.data() + 6);
    header.height = load_le16(bytes.data() + 8);
    header.channels = 1;
  }

  void read() {
    struct Kind {
      std::string_view start;
      ImageFormat format;
      void (HeaderReader::*read)();
    };
    const Kind kinds[] = {
        {"\xff\xd8\xff", ImageFormat::jpeg, &HeaderReader::read_jpeg},
        {as_text(kPngSignature), ImageFormat::png, &HeaderReader::read_png},
        {"RIFF", ImageFormat::webp, &HeaderReader::read_webp},
        {"BM", ImageFormat::bmp, &HeaderReader::read_bmp},
        {"II*\0"sv, ImageFormat::tiff, &HeaderReader::read_tiff},
        {"MM\0*"sv, ImageFormat::tiff, &HeaderReader::read_tiff},
        {"GIF87a", ImageFormat::gif, &HeaderReader::read_gif},
        {"GIF89a", ImageFormat::gif, &HeaderReader::read_gif}};
    for (const auto& [start, format, read_it] : kinds) {
      // RIFF holds sound as well.
      if (!has_text(bytes, 0, start) ||
          (start == "RIFF" && !has_text(bytes, 8, "WEBP"))) {
        continue;
      }
      header.format = format;
      return (this->*read_it)();
    }
    const auto start = bytes.first(std::min<size_t>(bytes.size(), 8));
    fail(
        (bytes.empty() ? "is empty, not an image."
                       : "is not an image: it starts with the bytes " +
                             hex_digits(as_text(start)) + ".") +
        " Tern reads JPEG, PNG, WebP, BMP and TIFF; convert or remove the "
        "file.");
  }
};

}  // namespace

const char* to_string(ImageFormat format) {
  constexpr const char* kNames[] =
      {"JPEG", "PNG", "WebP", "BMP", "TIFF", "GIF"};
  return kNames[static_cast<size_t>(format)];
}

int exif_orientation(std::span<const uint8_t> bytes) {
  return TiffTags(bytes).orientation();
}

std::vector<uint8_t> tiff_as_stored(std::span<const uint8_t> bytes) {
  const TiffTags tags(bytes);
  std::vector<uint8_t> copy;
  tags.set_to_one(TiffTags::kOrientation, copy);
  tags.set_to_one(TiffTags::kExtraSamples, copy);
  return copy;
}

ImageHeader read_image_header(
    std::span<const uint8_t> bytes,
    std::string_view path,
    int64_t max_pixels) {
  HeaderReader reader{bytes, path};
  reader.read();
  const ImageHeader& header = reader.header;
  if (header.width <= 0 || header.height <= 0) {
    reader.fail_damaged("its size is " + reader.size_text());
  }
  if (header.width > max_pixels / header.height) {
    reader.fail(
        "has " + reader.size_text() + " pixels, more than the limit of " +
        std::to_string(max_pixels) +
        ". Remove the file, or raise max_pixels if you trust it.");
  }
  return header;
}

}  // namespace tern
