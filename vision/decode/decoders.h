#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tern/data/formats/samples/image_header.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/image_size.h"

namespace tern {

/// An image file in memory and how to decode it. A view.
struct EncodedBytes {
  std::span<const uint8_t> bytes;
  std::string_view path;  // for error messages
  const ImageHeader& header;
  int64_t channels = 3;  // of the decoded pixels: 3 (RGB) or 1 (grey)
  /// Decodes a truncated or damaged JPEG as far as possible.
  bool lenient = false;
  /// Returns the values that a PNG stores instead of the colours that they
  /// stand for; needs one channel and at most 8 bits.
  bool indices = false;

  ImageSize size() const { return {header.height, header.width}; }
};

// The decoders write [header.height, header.width, channels] as stored, without
// applying the EXIF orientation. They throw DataError if the file is truncated
// or damaged.

/// Decodes a JPEG with libjpeg-turbo.
void decode_jpeg(const EncodedBytes& file, uint8_t* pixels);

/// Size of an image of size `stored` that is decoded at 1/`denominator`.
ImageSize jpeg_scaled_size(ImageSize stored, int denominator);

/// Decodes a part of a JPEG.
///
/// \param denominator  1, 2, 4 or 8: decodes at this fraction of the size,
/// which
///                     is faster and averages.
/// \param wanted       In pixels of the scaled image.
/// \param buffer       Receives [height, width, channels] of the returned
/// region. \return  The decoded region: `wanted`, up to one block wider on each
/// side.
///
/// Rows above `wanted` are parsed but not transformed; rows below are not even
/// parsed, except for the end marker. Damage outside may go unnoticed.
ImageRegion decode_jpeg_region(
    const EncodedBytes& file,
    int denominator,
    ImageRegion wanted,
    ScratchBuffer& buffer);

/// Decodes any PNG: 1 to 16 bits, grey, colour or palette, with alpha
/// (dropped), interlaced or not. Every checksum is verified.
void decode_png(const EncodedBytes& file, uint8_t* pixels);

/// Decodes a WebP, BMP or TIFF with OpenCV.
void decode_opencv(const EncodedBytes& file, uint8_t* pixels);

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
