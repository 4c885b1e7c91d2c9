#pragma once

#include <cstdint>
#include <string>

#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

class EncodedImage;

// The decoders write the image as stored, [height, width, options().channels],
// without applying the EXIF orientation. They throw DataError if the file is
// truncated or damaged.

/// Decodes a JPEG with libjpeg-turbo.
void decode_jpeg(const EncodedImage& file, uint8_t* pixels);

/// Returns the size of an image of size `stored` after it is decoded at
/// 1/`denominator`.
ImageSize jpeg_scaled_size(ImageSize stored, int denominator);

/// Decodes a region of a JPEG.
///
/// Rows above `wanted` are parsed but not decoded to pixels. Rows below it are
/// not parsed, except for the end marker. Damage outside of the region may not
/// be detected.
///
/// \param denominator  1, 2, 4 or 8: decodes at 1/`denominator` of the size,
///                     which is faster and averages pixels.
/// \param wanted       The region in pixels of the scaled image.
/// \param buffer       Receives the decoded region, [height, width, channels].
/// \return The decoded region, which is up to one block wider than `wanted` on
/// each side.
ImageRegion decode_jpeg_region(
    const EncodedImage& file,
    int denominator,
    ImageRegion wanted,
    ScratchBuffer& buffer);

/// Decodes any PNG: 1 to 16 bits, gray, color or palette, with or without alpha
/// (which is dropped), interlaced or not. Verifies the checksums of all
/// critical chunks.
void decode_png(const EncodedImage& file, uint8_t* pixels);

/// Returns 0.299 R + 0.587 G + 0.114 B, rounded as OpenCV does.
inline uint8_t gray_of(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + 16384) >> 15);
}

/// Decodes a PGM or PPM.
void decode_pnm(const EncodedImage& file, uint8_t* pixels);

/// Decodes a WebP, BMP or TIFF with OpenCV.
void decode_opencv(const EncodedImage& file, uint8_t* pixels);

/// Captures the output of this thread to std::cerr during the lifetime of the
/// object. OpenCV writes a message there for every image that it cannot decode,
/// and its log level suppresses only some of these messages. Output of other
/// threads is not captured.
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
