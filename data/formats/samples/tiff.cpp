#include "tern/data/formats/samples/tiff.h"

#include <algorithm>
#include <array>
#include <string>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"

namespace tern {
namespace {

using namespace std::string_view_literals;

constexpr size_t kHeaderBytes = 8, kEntryBytes = 12;
constexpr uint32_t kByte = 1, kShort = 3, kLong = 4;
// Indexed by type: BYTE, ASCII, SHORT, LONG, RATIONAL, the signed types, FLOAT,
// DOUBLE and IFD.
constexpr std::array<size_t, 14> kTypeBytes =
    {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};

constexpr uint32_t kUncompressed = 1, kOldJpeg = 6;  // of Compression
constexpr uint32_t kYCbCr = 6;                       // of Photometric

uint64_t divide_up(uint64_t dividend, uint64_t divisor) {
  return dividend / divisor + (dividend % divisor != 0);
}

}  // namespace

TiffTags::TiffTags(std::span<const uint8_t> bytes)
    : bytes_(bytes), is_big_endian_(as_text(bytes).starts_with("MM\0*"sv)) {
  is_tiff_ = bytes.size() >= kHeaderBytes &&
             (is_big_endian_ || as_text(bytes).starts_with("II*\0"sv));
  if (!is_tiff_) return;
  const size_t directory = load32(4);
  if (directory < kHeaderBytes || directory > bytes.size() ||
      bytes.size() - directory < 2) {
    return;
  }
  entries_ = directory + 2;
  const size_t room = (bytes.size() - entries_) / kEntryBytes;
  count_ = std::min<size_t>(load16(directory), room);
  is_whole_ = count_ == load16(directory);
}

TiffTags::Values TiffTags::find(uint16_t tag) const {
  for (size_t i = 0; i < count_; ++i) {
    const size_t entry = entries_ + i * kEntryBytes;
    if (load16(entry) != tag) continue;
    const uint32_t type = load16(entry + 2);
    const size_t count = load32(entry + 4);
    const size_t size = type < kTypeBytes.size() ? kTypeBytes[type] : 0;
    if (size == 0 || count == 0) return {};
    // Up to four bytes are stored in the entry itself, more at an offset.
    const uint64_t total = uint64_t{size} * count;
    const size_t at = total <= 4 ? entry + 8 : load32(entry + 8);
    if (at > bytes_.size() || total > bytes_.size() - at) {
      return {.is_cut = true};
    }
    return {.at = at, .count = count, .type = type};
  }
  return {};
}

uint32_t TiffTags::load(const Values& values, size_t index) const {
  switch (values.type) {
    case kByte:
      return bytes_[values.at + index];
    case kShort:
      return load16(values.at + index * 2);
    case kLong:
      return load32(values.at + index * 4);
    default:
      return 0;
  }
}

uint32_t TiffTags::value(uint16_t tag, uint32_t otherwise) const {
  const Values values = find(tag);
  const bool is_number =
      values.type == kByte || values.type == kShort || values.type == kLong;
  return is_number ? load(values, 0) : otherwise;
}

void TiffTags::set_to_one(uint16_t tag, std::vector<uint8_t>& copy) const {
  if (value(tag, 1) == 1) return;
  if (copy.empty()) copy.assign(bytes_.begin(), bytes_.end());
  const Values values = find(tag);
  const size_t size = kTypeBytes[values.type];
  const auto first = copy.begin() + static_cast<std::ptrdiff_t>(values.at);
  std::fill_n(first, size, 0);
  copy[is_big_endian_ ? values.at + size - 1 : values.at] = 1;
}

int TiffTags::orientation() const {
  const uint32_t orientation = value(kOrientation, 1);
  return orientation - 1 < 8 ? static_cast<int>(orientation) : 1;
}

uint32_t TiffTags::load16(size_t offset) const {
  const uint8_t* at = bytes_.data() + offset;
  return is_big_endian_ ? load_be16(at) : load_le16(at);
}

uint32_t TiffTags::load32(size_t offset) const {
  const uint8_t* at = bytes_.data() + offset;
  return is_big_endian_ ? load_be32(at) : load_le32(at);
}

namespace {

class PixelCheck {
 public:
  PixelCheck(std::span<const uint8_t> bytes, std::string_view path)
      : bytes_(bytes),
        path_(path),
        tags_(bytes),
        width_(tags_.value(TiffTags::kWidth, 0)),
        height_(tags_.value(TiffTags::kHeight, 0)),
        samples_(tags_.value(TiffTags::kSamplesPerPixel, 1)),
        bits_(tags_.value(TiffTags::kBitsPerSample, 1)),
        compression_(tags_.value(TiffTags::kCompression, kUncompressed)) {}

  void check() const {
    if (samples_ == 0 || samples_ > 0xffff || bits_ == 0 || bits_ > 64) {
      fail_damaged(
          "a pixel has " + std::to_string(samples_) + " samples of " +
          std::to_string(bits_) + " bits");
    }
    const TiffTags::Values offsets =
        find_either(TiffTags::kTileOffsets, TiffTags::kStripOffsets);
    const TiffTags::Values sizes =
        find_either(TiffTags::kTileByteCounts, TiffTags::kStripByteCounts);
    if (compression_ == kOldJpeg) {
      // A single JPEG stream, which need not list its strips.
      const uint64_t start = tags_.value(TiffTags::kOldJpegStart, 0);
      const uint64_t length = tags_.value(TiffTags::kOldJpegLength, 0);
      if (start + length > bytes_.size()) fail_truncated();
      if (offsets.count == 0 || sizes.count == 0) return;
    }
    check_blocks(find_blocks(), offsets, sizes);
  }

 private:
  /// Division of the pixels into tiles, or strips of whole rows. Blocks of the
  /// first plane come first.
  struct Blocks {
    bool is_tiled = false;
    uint64_t width = 0, height = 0;  // of one block
    uint64_t across = 1, per_plane = 1, planes = 1;
    uint64_t row_bytes = 0;  // of one uncompressed block
  };

  Blocks find_blocks() const {
    Blocks blocks;
    blocks.is_tiled = tags_.find(TiffTags::kTileWidth).count > 0;
    if (blocks.is_tiled) {
      blocks.width = tags_.value(TiffTags::kTileWidth, 0);
      blocks.height = tags_.value(TiffTags::kTileHeight, 0);
      if (blocks.width == 0 || blocks.height == 0) {
        fail_damaged("its tiles have no width or height");
      }
    } else {
      const uint64_t rows = tags_.value(TiffTags::kRowsPerStrip, 0);
      blocks.width = width_;
      blocks.height = rows == 0 ? height_ : std::min(rows, height_);
    }
    const bool is_separate =
        tags_.value(TiffTags::kPlanarConfig, 1) == TiffTags::kSeparatePlanes;
    blocks.planes = is_separate ? samples_ : 1;
    blocks.across = divide_up(width_, blocks.width);
    blocks.per_plane = blocks.across * divide_up(height_, blocks.height);
    const uint64_t samples_together = is_separate ? 1 : samples_;
    blocks.row_bytes = divide_up(blocks.width * bits_ * samples_together, 8);
    return blocks;
  }

  void check_blocks(
      const Blocks& blocks,
      const TiffTags::Values& offsets,
      const TiffTags::Values& sizes) const {
    if (blocks.per_plane > offsets.count / blocks.planes) {
      fail_damaged(
          "it lists " + std::to_string(offsets.count) +
          " strips or tiles, but its size needs " +
          std::to_string(blocks.planes) + " x " +
          std::to_string(blocks.per_plane));
    }
    const uint64_t count = blocks.per_plane * blocks.planes;
    // Uncompressed YCbCr subsamples its colors.
    const bool is_plain = compression_ == kUncompressed &&
                          tags_.value(TiffTags::kPhotometric, 0) != kYCbCr;
    // libtiff computes the size of a single uncompressed strip from width and
    // height. A compressed strip without a size is rejected, because its end is
    // unknown and missing data would be decoded as black.
    const bool needs_sizes = !is_plain || blocks.is_tiled || count > 1;
    if (needs_sizes && sizes.count < count) {
      fail_damaged("the byte counts of its strips or tiles are missing");
    }
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t offset = tags_.load(offsets, i);
      const uint64_t size = needs_sizes ? tags_.load(sizes, i) : 0;
      // GDAL marks all-zero blocks this way.
      if (needs_sizes && offset == 0 && size == 0) continue;
      const uint64_t top = i % blocks.per_plane / blocks.across * blocks.height;
      const uint64_t rows = blocks.is_tiled
                                ? blocks.height
                                : std::min(blocks.height, height_ - top);
      const auto is_too_small = [&](uint64_t room) {
        return is_plain && blocks.row_bytes > room / rows;
      };
      const uint64_t there =
          bytes_.size() - std::min<uint64_t>(offset, bytes_.size());
      if (size > there || is_too_small(there)) fail_truncated();
      if (needs_sizes && (size == 0 || is_too_small(size))) {
        fail_damaged("a strip or tile is shorter than its rows");
      }
    }
  }

  TiffTags::Values find_either(uint16_t of_tiles, uint16_t of_strips) const {
    const TiffTags::Values values = tags_.find(of_tiles);
    return values.count > 0 ? values : tags_.find(of_strips);
  }

  [[noreturn]] void fail_truncated() const {
    throw DataError(
        std::string(path_),
        "is truncated: the TIFF file has " + std::to_string(bytes_.size()) +
            " bytes, and its pixel data extends beyond the end. Replace it or "
            "remove it.");
  }
  [[noreturn]] void fail_damaged(const std::string& what) const {
    throw DataError(
        std::string(path_),
        "is a damaged TIFF file: " + what +
            ". Save it again as TIFF or PNG, or remove it.");
  }

  std::span<const uint8_t> bytes_;
  std::string_view path_;
  TiffTags tags_;
  uint64_t width_, height_, samples_, bits_;
  uint32_t compression_;
};

}  // namespace

void check_tiff_pixels(std::span<const uint8_t> bytes, std::string_view path) {
  PixelCheck(bytes, path).check();
}

}  // namespace tern
