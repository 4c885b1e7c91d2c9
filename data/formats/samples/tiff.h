#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tern {

/// The tags of the first directory of a TIFF structure: a TIFF file, or the
/// EXIF block of another image format. BigTIFF is not supported.
class TiffTags {
 public:
  static constexpr uint16_t kWidth = 256, kHeight = 257, kBitsPerSample = 258;
  static constexpr uint16_t kCompression = 259, kPhotometric = 262;
  static constexpr uint16_t kStripOffsets = 273, kOrientation = 274;
  static constexpr uint16_t kSamplesPerPixel = 277, kRowsPerStrip = 278;
  static constexpr uint16_t kStripByteCounts = 279, kPlanarConfig = 284;
  static constexpr uint16_t kColorMap = 320, kTileWidth = 322;
  static constexpr uint16_t kTileHeight = 323, kTileOffsets = 324;
  static constexpr uint16_t kTileByteCounts = 325, kExtraSamples = 338;
  static constexpr uint16_t kSampleFormat = 339, kJpegTables = 347;
  static constexpr uint16_t kOldJpegStart = 513, kOldJpegLength = 514;
  static constexpr uint16_t kYCbCrCoefficients = 529;
  static constexpr uint16_t kReferenceBlackWhite = 532;
  /// Value of kPlanarConfig: each color is stored as a separate plane.
  static constexpr uint32_t kSeparatePlanes = 2;

  explicit TiffTags(std::span<const uint8_t> bytes);

  /// True if the bytes start like a TIFF.
  bool is_tiff() const { return is_tiff_; }
  /// True if the whole directory is within the bytes.
  bool is_whole() const { return is_whole_; }

  /// The values of a tag; none if it is missing or outside the bytes.
  struct Values {
    size_t at = 0, count = 0;
    uint32_t type = 0;
    /// The tag exists, but some of its values are outside the bytes.
    bool is_cut = false;
  };
  Values find(uint16_t tag) const;

  /// Returns the value at `index` of a tag of type BYTE, SHORT or LONG; 0 for
  /// any other type.
  uint32_t load(const Values& values, size_t index) const;
  /// Returns the first value of such a tag, or `otherwise` if there is none.
  uint32_t value(uint16_t tag, uint32_t otherwise) const;

  /// Sets the value of a tag to 1 in `copy`, which is filled with the bytes
  /// first if it is empty. Does nothing if the tag is missing or already 1.
  void set_to_one(uint16_t tag, std::vector<uint8_t>& copy) const;

  /// Returns 1..8 as in EXIF; 1 if the tag is missing or invalid.
  int orientation() const;

 private:
  uint32_t load16(size_t offset) const;
  uint32_t load32(size_t offset) const;

  std::span<const uint8_t> bytes_;
  bool is_big_endian_, is_tiff_ = false, is_whole_ = false;
  size_t entries_ = 0;  // offset of the first entry
  size_t count_ = 0;    // entries within the bytes
};

/// Checks that a TIFF file contains all the pixels that its tags declare.
/// libtiff decodes missing pixels as black, without an error that OpenCV would
/// report.
///
/// \param bytes  A whole file, whose width and height are not 0.
/// \param path   File name for error messages.
/// \throws DataError if it is truncated or its tags contradict each other.
void check_tiff_pixels(std::span<const uint8_t> bytes, std::string_view path);

}  // namespace tern
