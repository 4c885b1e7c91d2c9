#include "tern/data/formats/image_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/data/formats/exif.h"
#include "tern/data/formats/load_bytes.h"
#include "tern/data/formats/png_chunks.h"

namespace tern {
namespace {

using Bytes = std::span<const uint8_t>;

bool has_text(Bytes bytes, size_t offset, std::string_view text) {
  return bytes.size() >= offset + text.size() &&
         std::memcmp(bytes.data() + offset, text.data(), text.size()) == 0;
}

[[noreturn]] void fail(std::string_view path, const std::string& reason) {
  throw DataError(std::string(path), reason);
}

[[noreturn]] void fail_truncated(std::string_view path, ImageFormat format) {
  fail(
      path,
      std::string("is truncated: the ") + to_string(format) +
          " file ends within its header. Copy the file again or remove it.");
}

[[noreturn]] void fail_damaged(
    std::string_view path,
    ImageFormat format,
    const std::string& what) {
  fail(
      path,
      std::string("is a damaged ") + to_string(format) + " file: " + what +
          ". Copy the file again or remove it.");
}

[[noreturn]] void fail_unknown(Bytes bytes, std::string_view path) {
  const std::string cure =
      " Tern reads JPEG, PNG, WebP, BMP and TIFF; convert or remove the file.";
  if (bytes.empty()) {
    fail(path, "is empty, not an image." + cure);
  }
  std::string start;
  for (const uint8_t byte : bytes.first(std::min<size_t>(bytes.size(), 8))) {
    constexpr char kDigits[] = "0123456789abcdef";
    start += start.empty() ? "" : " ";
    start += kDigits[byte >> 4];
    start += kDigits[byte & 15];
  }
  fail(path, "is not an image: it starts with the bytes " + start + "." + cure);
}

std::string size_text(const ImageHeader& header) {
  return std::to_string(header.width) + " x " + std::to_string(header.height);
}

std::optional<ImageFormat> format_of(Bytes bytes) {
  using namespace std::string_view_literals;
  if (has_text(bytes, 0, "\xff\xd8\xff")) {
    return ImageFormat::jpeg;
  }
  if (bytes.size() >= kPngSignature.size() &&
      std::equal(kPngSignature.begin(), kPngSignature.end(), bytes.begin())) {
    return ImageFormat::png;
  }
  if (has_text(bytes, 0, "RIFF") && has_text(bytes, 8, "WEBP")) {
    return ImageFormat::webp;
  }
  if (has_text(bytes, 0, "BM")) {
    return ImageFormat::bmp;
  }
  if (has_text(bytes, 0, "II*\0"sv) || has_text(bytes, 0, "MM\0*"sv)) {
    return ImageFormat::tiff;
  }
  if (has_text(bytes, 0, "GIF87a") || has_text(bytes, 0, "GIF89a")) {
    return ImageFormat::gif;
  }
  return std::nullopt;
}

/// Walks the segments up to the frame header (ITU-T T.81, annex B).
void read_jpeg(Bytes bytes, std::string_view path, ImageHeader& header) {
  size_t at = 2;
  while (bytes.size() - at >= 4) {
    if (bytes[at] != 0xff) {
      fail_damaged(path, header.format, "a segment has no marker");
    }
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
    if (length < 2) {
      fail_damaged(path, header.format, "a segment has no length");
    }
    if (length > bytes.size() - at - 2) {
      break;
    }
    const Bytes segment = bytes.subspan(at + 4, length - 2);
    const bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 &&
                          marker != 0xc8 && marker != 0xcc;
    if (is_frame) {
      if (segment.size() < 6) {
        fail_damaged(path, header.format, "the frame header is too short");
      }
      header.bit_depth = segment[0];
      header.height = load_be16(segment.data() + 1);
      header.width = load_be16(segment.data() + 3);
      header.channels = segment[5];
      return;
    }
    if (marker == 0xd9 || marker == 0xda) {
      fail_damaged(path, header.format, "it has no frame header");
    }
    using namespace std::string_view_literals;
    if (marker == 0xe1 && has_text(segment, 0, "Exif\0\0"sv)) {
      header.orientation = exif_orientation(segment.subspan(6));
    }
    at += 2 + length;
  }
  fail_truncated(path, header.format);
}

void read_png(Bytes bytes, std::string_view path, ImageHeader& header) {
  PngChunks chunks(bytes);
  const std::optional<PngChunk> first = chunks.next();
  if (!first) {
    fail_truncated(path, header.format);
  }
  if (first->type != png_type("IHDR") || first->data.size() != 13) {
    fail_damaged(path, header.format, "it does not start with IHDR");
  }
  const uint8_t* ihdr = first->data.data();
  header.width = load_be32(ihdr);
  header.height = load_be32(ihdr + 4);
  header.bit_depth = ihdr[8];
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  header.channels = ihdr[9] < 7 ? kChannels[ihdr[9]] : 0;
  while (const std::optional<PngChunk> chunk = chunks.next()) {
    if (chunk->type == png_type("eXIf")) {
      header.orientation = exif_orientation(chunk->data);
    }
  }
}

uint32_t load_le24(const uint8_t* bytes) {
  return load_le16(bytes) | static_cast<uint32_t>(bytes[2]) << 16;
}

/// The chunks of an extended WebP file up to its EXIF.
int webp_orientation(Bytes bytes) {
  size_t at = 12;
  while (at <= bytes.size() && bytes.size() - at >= 8) {
    const size_t length = load_le32(bytes.data() + at + 4);
    if (length > bytes.size() - at - 8) {
      break;
    }
    if (has_text(bytes, at, "EXIF")) {
      const Bytes exif = bytes.subspan(at + 8, length);
      using namespace std::string_view_literals;
      const bool has_prefix = has_text(exif, 0, "Exif\0\0"sv);
      return exif_orientation(exif.subspan(has_prefix ? 6 : 0));
    }
    at += 8 + length + (length & 1);
  }
  return 1;
}

void read_webp(Bytes bytes, std::string_view path, ImageHeader& header) {
  const bool is_lossless = has_text(bytes, 12, "VP8L");
  if (bytes.size() < (is_lossless ? 25 : 30)) {
    fail_truncated(path, header.format);
  }
  if (load_le32(bytes.data() + 4) > bytes.size() - 8) {
    fail(
        path,
        "is truncated: the WebP file says that it has " +
            std::to_string(uint64_t{8} + load_le32(bytes.data() + 4)) +
            " bytes, but it has " + std::to_string(bytes.size()) +
            ". Copy the file again or remove it.");
  }
  const uint8_t* data = bytes.data() + 20;
  header.channels = 3;
  if (has_text(bytes, 12, "VP8X")) {
    if ((data[0] & 2) != 0) {
      fail(path, "is an animated WebP file; save one frame of it instead.");
    }
    header.channels = (data[0] & 16) != 0 ? 4 : 3;
    header.width = load_le24(data + 4) + 1;
    header.height = load_le24(data + 7) + 1;
    header.orientation = webp_orientation(bytes);
  } else if (is_lossless && data[0] == 0x2f) {
    const uint32_t bits = load_le32(data + 1);
    header.width = (bits & 0x3fff) + 1;
    header.height = (bits >> 14 & 0x3fff) + 1;
    header.channels = (bits >> 28 & 1) != 0 ? 4 : 3;
  } else if (has_text(bytes, 12, "VP8 ") && has_text(bytes, 23, "\x9d\x01*")) {
    header.width = load_le16(data + 6) & 0x3fff;
    header.height = load_le16(data + 8) & 0x3fff;
  } else {
    fail_damaged(path, header.format, "it does not start with an image chunk");
  }
}

void read_bmp(Bytes bytes, std::string_view path, ImageHeader& header) {
  if (bytes.size() < 34) {
    fail_truncated(path, header.format);
  }
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
  header.bit_depth = bits == 16 ? 5 : std::min(bits, 8);
  if (bits > 32) {
    fail_damaged(path, header.format, "a pixel has more than 32 bits");
  }
  if (is_plain && header.width > 0 && header.height > 0) {
    const uint64_t start = load_le32(bytes.data() + 10);
    const uint64_t row = (static_cast<uint64_t>(header.width) * bits + 31) / 32;
    const uint64_t there =
        bytes.size() - std::min<uint64_t>(start, bytes.size());
    if (row * 4 > there / header.height) {
      fail(
          path,
          "is truncated: the BMP file has " + std::to_string(there) +
              " bytes of pixels for " + size_text(header) +
              " pixels. Copy the file again or remove it.");
    }
  }
}

void read_tiff(Bytes bytes, std::string_view path, ImageHeader& header) {
  const std::optional<TiffTags> tags = TiffTags::parse(bytes);
  if (!tags) {
    fail_truncated(path, header.format);
  }
  const auto value = [&](uint16_t tag, uint32_t otherwise) {
    return tags->value(tag).value_or(otherwise);
  };
  header.width = value(TiffTags::kWidth, 0);
  header.height = value(TiffTags::kHeight, 0);
  header.channels = static_cast<int>(value(TiffTags::kSamplesPerPixel, 1));
  header.bit_depth = static_cast<int>(value(TiffTags::kBitsPerSample, 1));
  const uint32_t orientation = value(TiffTags::kOrientation, 1);
  header.orientation = static_cast<int>(orientation - 1 < 8 ? orientation : 1);
  if (value(TiffTags::kSampleFormat, 1) != 1) {
    fail(
        path,
        "is a TIFF file of floating-point or signed numbers, whose range Tern "
        "cannot know; save it with 8 or 16 bits.");
  }
}

}  // namespace

const char* to_string(ImageFormat format) {
  switch (format) {
    case ImageFormat::jpeg:
      return "JPEG";
    case ImageFormat::png:
      return "PNG";
    case ImageFormat::webp:
      return "WebP";
    case ImageFormat::bmp:
      return "BMP";
    case ImageFormat::tiff:
      return "TIFF";
    case ImageFormat::gif:
      return "GIF";
  }
  return "unknown";
}

ImageHeader read_image_header(
    std::span<const uint8_t> bytes,
    std::string_view path,
    int64_t max_pixels) {
  const std::optional<ImageFormat> format = format_of(bytes);
  if (!format) {
    fail_unknown(bytes, path);
  }
  ImageHeader header{.format = *format};
  switch (*format) {
    case ImageFormat::jpeg:
      read_jpeg(bytes, path, header);
      break;
    case ImageFormat::png:
      read_png(bytes, path, header);
      break;
    case ImageFormat::webp:
      read_webp(bytes, path, header);
      break;
    case ImageFormat::bmp:
      read_bmp(bytes, path, header);
      break;
    case ImageFormat::tiff:
      read_tiff(bytes, path, header);
      break;
    case ImageFormat::gif:
      if (bytes.size() < 10) {
        fail_truncated(path, header.format);
      }
      header.width = load_le16(bytes.data() + 6);
      header.height = load_le16(bytes.data() + 8);
      header.channels = 1;
      break;
  }
  if (header.width <= 0 || header.height <= 0) {
    fail_damaged(path, *format, "its size is " + size_text(header));
  }
  if (header.width > max_pixels / header.height) {
    fail(
        path,
        "has " + size_text(header) + " pixels, more than the limit of " +
            std::to_string(max_pixels) +
            ". Remove the file, or raise max_pixels if you trust it.");
  }
  return header;
}

}  // namespace tern
