#include "tern/data/formats/samples/image_header.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/png.h"
#include "tern/data/formats/samples/pnm.h"
#include "tern/data/formats/samples/tiff.h"
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
        " file ends within its header. Replace it or remove it.");
  }
  [[noreturn]] void fail_damaged(const std::string& what) const {
    fail(
        std::string("is a damaged ") + to_string(header.format) +
        " file: " + what + ". Replace it or remove it.");
  }
  std::string size_text() const {
    return std::to_string(header.width) + " x " + std::to_string(header.height);
  }

  /// Iterates over the segments up to the frame header (ITU-T T.81, annex B).
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
    header.channels = png_channels(ihdr[9]);
    while (const std::optional<PngChunk> chunk = chunks.next()) {
      if (chunk->type == png_type("eXIf")) {
        header.orientation = exif_orientation(chunk->data);
      }
    }
  }

  /// Iterates over the chunks of an extended WebP file up to its EXIF.
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
          "is truncated: the WebP file has a stated size of " +
          std::to_string(uint64_t{8} + load_le32(bytes.data() + 4)) +
          " bytes, but has " + std::to_string(bytes.size()) +
          ". Replace it or remove it.");
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
    bool is_plain = true;  // uncompressed: neither run lengths nor JPEG
    if (load_le32(info) == 12) {
      header.width = load_le16(info + 4);
      header.height = load_le16(info + 6);
      bits = load_le16(info + 10);
    } else {
      // Signed, because a negative height means rows from top to bottom.
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
          " pixels. Replace it or remove it.");
    }
  }

  void read_tiff() {
    const TiffTags tags(bytes);
    if (!tags.is_tiff() || !tags.is_whole()) fail_truncated();
    // Without the values of these tags, the pixels would be decoded wrongly.
    for (const uint16_t tag :
         {TiffTags::kBitsPerSample,
          TiffTags::kStripOffsets,
          TiffTags::kStripByteCounts,
          TiffTags::kColorMap,
          TiffTags::kTileOffsets,
          TiffTags::kTileByteCounts,
          TiffTags::kExtraSamples,
          TiffTags::kSampleFormat,
          TiffTags::kJpegTables,
          TiffTags::kYCbCrCoefficients,
          TiffTags::kReferenceBlackWhite}) {
      if (tags.find(tag).is_cut) fail_truncated();
    }
    header.width = tags.value(TiffTags::kWidth, 0);
    header.height = tags.value(TiffTags::kHeight, 0);
    header.channels =
        static_cast<int>(tags.value(TiffTags::kSamplesPerPixel, 1));
    header.orientation = tags.orientation();
    if (tags.value(TiffTags::kSampleFormat, 1) != 1) {
      fail(
          "is a TIFF file of floating-point or signed numbers, whose range is "
          "unknown; save it with 8 or 16 bits.");
    }
    if (tags.value(TiffTags::kPlanarConfig, 1) == TiffTags::kSeparatePlanes &&
        header.channels > 1 && tags.value(TiffTags::kBitsPerSample, 1) > 8) {
      fail(
          "is a TIFF file with more than 8 bits per channel and a separate "
          "plane per channel, of which OpenCV reads only the first plane; save "
          "it with interleaved channels, or with 8 bits.");
    }
  }

  void read_pnm() {
    const PnmFile file = parse_pnm(bytes, path);
    header.width = file.width;
    header.height = file.height;
    header.channels = file.channels;
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
        {"P5", ImageFormat::pnm, &HeaderReader::read_pnm},
        {"P6", ImageFormat::pnm, &HeaderReader::read_pnm},
        {"GIF87a", ImageFormat::gif, &HeaderReader::read_gif},
        {"GIF89a", ImageFormat::gif, &HeaderReader::read_gif}};
    for (const auto& [start, format, read_it] : kinds) {
      // RIFF files may also contain sound.
      if (!has_text(bytes, 0, start) ||
          (start == "RIFF" && !has_text(bytes, 8, "WEBP")) ||
          (format == ImageFormat::pnm && !is_pnm(bytes))) {
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
        " Tern reads JPEG, PNG, WebP, BMP, TIFF and binary PGM and PPM; "
        "convert or remove the file.");
  }
};

}  // namespace

const char* to_string(ImageFormat format) {
  constexpr const char* kNames[] =
      {"JPEG", "PNG", "WebP", "BMP", "TIFF", "PNM", "GIF"};
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
  if (header.format == ImageFormat::tiff) check_tiff_pixels(bytes, path);
  return header;
}

}  // namespace tern
