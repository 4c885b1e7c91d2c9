#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tern {

/// The tags of the first directory of a TIFF structure: a TIFF file, or the
/// EXIF block of another image format. Looks into `bytes`, copies nothing.
class TiffTags {
 public:
  static constexpr uint16_t kWidth = 256, kHeight = 257, kBitsPerSample = 258;
  static constexpr uint16_t kOrientation = 274, kSamplesPerPixel = 277;
  static constexpr uint16_t kSampleFormat = 339;

  /// Nothing if `bytes` do not start as a TIFF does (BigTIFF does not).
  static std::optional<TiffTags> parse(std::span<const uint8_t> bytes);

  /// The first value of a tag of type BYTE, SHORT or LONG; nothing if it is
  /// absent, of another type or outside the bytes.
  std::optional<uint32_t> value(uint16_t tag) const;

 private:
  TiffTags(std::span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}
  uint32_t load16(size_t offset) const;
  uint32_t load32(size_t offset) const;

  std::span<const uint8_t> bytes_;
  bool big_endian_;
  size_t entries_ = 0;  // offset of the first entry
  size_t count_ = 0;    // entries that lie inside the bytes
};

/// How an image must be turned to stand upright, 1..8 as in EXIF; 1 (as it is)
/// when the block is damaged or says nothing.
/// \param bytes  An EXIF block from its "II" or "MM" on.
int exif_orientation(std::span<const uint8_t> bytes);

}  // namespace tern
