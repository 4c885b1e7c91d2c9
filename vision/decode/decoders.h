#pragma once

#include <cstdint>
#include <string>

#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

class EncodedImage;

// The decoders write [height, width, options().channels] as stored, without
// applying the EXIF orientation. They throw DataError if the file is truncated
// or damaged.

/// Decodes a JPEG with libjpeg-turbo.
void decode_jpeg(const EncodedImage& file, uint8_t* pixels);

/// Size of an image of size `stored` that is decoded at 1/`denominator`.
ImageSize jpeg_scaled_size(ImageSize stored, int denominator);

/// Decodes a part of a JPEG.
///
/// \param denominator  1, 2, 4 or 8: decodes at this fraction of the size,
///                     which is faster and averages.
/// \param wanted       In pixels of the scaled image.
/// \param buffer       Receives [height, width, channels] of the region.
/// \return The decoded region: `wanted`, up to one block wider on each side.
///
/// Rows above `wanted` are parsed but not transformed; rows below are not even
/// parsed, except for the end marker. Damage outside may go unnoticed.
ImageRegion decode_jpeg_region(
    const EncodedImage& file,
    int denominator,
    ImageRegion wanted,
    ScratchBuffer& buffer);

/// Decodes any PNG: 1 to 16 bits, gray, color or palette, with alpha
/// (dropped), interlaced or not. Every checksum is verified.
void decode_png(const EncodedImage& file, uint8_t* pixels);

/// Returns 0.299 R + 0.587 G + 0.114 B, rounded as by OpenCV.
inline uint8_t grey_of(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + 16384) >> 15);
}

/// Decodes a PGM or PPM.
void decode_pnm(const EncodedImage& file, uint8_t* pixels);

/// Decodes a WebP, BMP or TIFF with OpenCV.
void decode_opencv(const EncodedImage& file, uint8_t* pixels);

/// Captures what this thread writes to std::cerr during its lifetime: OpenCV
/// reports every image that it cannot decode there, and its log level silences
/// only part of that. Output of other threads passes through.
class QuietCerr {
 public:
  QuietCerr();
  ~QuietCerr();
  QuietCerr(const QuietCerr&) = delete;

  /// The captured text, at most 4096 bytes.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace tern
