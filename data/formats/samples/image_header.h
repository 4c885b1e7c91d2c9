#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tern {

/// Image formats recognized by their first bytes.
enum class ImageFormat { jpeg, png, webp, bmp, tiff, pnm, gif };

/// "JPEG", "PNG", ...
const char* to_string(ImageFormat format);

/// The properties of an image that its file declares before the pixels.
struct ImageHeader {
  ImageFormat format = ImageFormat::jpeg;
  /// As stored, before the orientation is applied; > 0.
  int64_t width = 0, height = 0;
  /// Colors and alpha as stored; 1 for a palette; 0 if not in the header.
  int channels = 0;
  /// Rotation or flip needed to show the image upright, 1..8 as in EXIF. Read
  /// from EXIF in JPEG, PNG and WebP, and from the tag in TIFF.
  int orientation = 1;
};

/// Default limit on the pixels of an image. It is Pillow's limit; a file of a
/// few kilobytes can exceed it.
inline constexpr int64_t kMaxPixels = 178'956'970;

/// Returns the rotation or flip needed to show an image upright, 1..8 as in
/// EXIF; 1 (unchanged) if the block is damaged or has no orientation.
/// \param bytes  An EXIF block, starting at its "II" or "MM".
int exif_orientation(std::span<const uint8_t> bytes);

/// Returns a copy of a TIFF file with orientation 1 and alpha marked as
/// premultiplied, so that libtiff neither rotates the image nor multiplies it
/// by its alpha. Empty if `bytes` need no change.
std::vector<uint8_t> tiff_as_stored(std::span<const uint8_t> bytes);

/// Reads the header of an image without decoding or allocating; takes well
/// under a microsecond.
///
/// \param bytes       The whole file.
/// \param path        File name for error messages.
/// \param max_pixels  Limit on width x height.
/// \throws DataError if it is not an image, its header is truncated or damaged,
///         or it has more pixels than allowed.
ImageHeader read_image_header(
    std::span<const uint8_t> bytes,
    std::string_view path = {},
    int64_t max_pixels = kMaxPixels);

}  // namespace tern
