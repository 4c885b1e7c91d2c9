#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tern {

/// The image formats that are recognized by their first bytes.
enum class ImageFormat { jpeg, png, webp, bmp, tiff, pnm, gif };

/// "JPEG", "PNG", ...
const char* to_string(ImageFormat format);

/// What an image file says of itself before its pixels.
struct ImageHeader {
  ImageFormat format = ImageFormat::jpeg;
  /// As stored, before any turning; > 0.
  int64_t width = 0, height = 0;
  /// Colors and alpha as stored; 1 for a palette; 0 when the header does not
  /// tell.
  int channels = 0;
  /// How the image must be turned to stand upright, 1..8 as in EXIF. Read from
  /// EXIF in JPEG, PNG and WebP, from the tag of TIFF.
  int orientation = 1;
};

/// The most pixels that an image may have unless a program says otherwise:
/// Pillow's limit, which a file of a few kilobytes can exceed.
inline constexpr int64_t kMaxPixels = 178'956'970;

/// How an image must be turned to stand upright, 1..8 as in EXIF; 1 (as it is)
/// when the block is damaged or says nothing.
/// \param bytes  An EXIF block from its "II" or "MM" on.
int exif_orientation(std::span<const uint8_t> bytes);

/// A copy of a TIFF file that libtiff neither turns upright nor multiplies by
/// its alpha: of orientation 1, with alpha that says it was multiplied already.
/// Empty if `bytes` need no change.
std::vector<uint8_t> tiff_as_stored(std::span<const uint8_t> bytes);

/// Reads the header of an image without decoding or allocating anything; costs
/// well under a microsecond.
///
/// \param bytes       The whole file.
/// \param path        Its name, for error messages.
/// \param max_pixels  Limit on width x height.
/// \throws DataError if it is no image, its header is cut or damaged, or it has
///         more pixels than allowed.
ImageHeader read_image_header(
    std::span<const uint8_t> bytes,
    std::string_view path = {},
    int64_t max_pixels = kMaxPixels);

}  // namespace tern
