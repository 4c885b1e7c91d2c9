#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <torch/types.h>

#include "tern/data/formats/samples/image_header.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

struct DecodeOptions {
  /// 3: RGB; gray images are repeated in each channel. 1: gray, 0.299 R + 0.587
  /// G + 0.114 B, within 1 of Pillow's convert("L").
  int64_t channels = 3;
  /// Applies the EXIF orientation, like cv::IMREAD_COLOR; fastai applies it
  /// only for TIFF.
  bool exif_orientation = true;
  /// Accepts a truncated or damaged JPEG; missing pixels are gray.
  bool lenient = false;
  /// Limit on width x height, checked before memory is allocated.
  int64_t max_pixels = kMaxPixels;
  /// Returns the stored values of a PNG instead of its colors: a mask of class
  /// indices. Requires one channel.
  bool indices = false;

  bool operator==(const DecodeOptions&) const = default;
};

/// Returns the size of an image after the EXIF orientation is applied.
inline ImageSize upright_size(const ImageHeader& header) {
  const bool lies = header.orientation >= 5;
  return lies ? ImageSize{header.width, header.height}
              : ImageSize{header.height, header.width};
}

/// Returns the matrix that maps a point of the upright image to the same point
/// of the image as stored.
/// \param orientation  EXIF orientation, 1 to 8.
/// \param stored       Size of the image as stored.
Matrix3 stored_from_upright(int orientation, ImageSize stored);

/// True if two sizes have the same aspect ratio, up to rounding of one side.
bool has_shape_of(ImageSize size, ImageSize other);

/// True if the orientation of a mask is ambiguous: the image is rotated by its
/// EXIF orientation, the mask has no orientation, and the size of the mask fits
/// the image as stored.
/// \param image, mask  Upright sizes.
bool may_be_turned(
    int image_orientation,
    ImageSize image,
    int mask_orientation,
    ImageSize mask);

/// An image file in memory with a valid header. This is a view: the bytes and
/// the path must outlive it.
///
///   EncodedImage image(bytes, "cat.jpg");
///   auto pixels = torch::empty({224, 224, 3}, torch::kByte);
///   image.decode({224, 224}, pixels.data_ptr<uint8_t>());
///
/// Reads JPEG, PNG, WebP, BMP, TIFF, and binary PGM and PPM; the format is
/// detected from the content. Drops alpha, applies palettes, divides 16-bit
/// values by 257 and reads CMYK as Adobe writes it (inverted). The checksums of
/// PNG files are verified. In the other formats, damage that the decoder does
/// not detect results in wrong pixels; see `write_image_manifest`.
class EncodedImage {
 public:
  /// \param bytes  The whole file.
  /// \param path   File name for error messages.
  /// \throws DataError, see `read_image_header`; c10::ValueError for invalid
  ///         options.
  EncodedImage(
      std::span<const uint8_t> bytes,
      std::string_view path,
      const DecodeOptions& options = {});

  std::span<const uint8_t> bytes() const { return bytes_; }
  std::string_view path() const { return path_; }
  const ImageHeader& header() const { return header_; }
  const DecodeOptions& options() const { return options_; }
  /// Returns height and width after the EXIF orientation is applied.
  ImageSize size() const { return upright_size(header_); }
  /// Returns height and width before the EXIF orientation is applied.
  ImageSize stored_size() const { return {header_.height, header_.width}; }

  /// Decodes the image into `pixels`. If `size` differs from `size()`, the
  /// image is stretched to it, within 1 of Pillow's BILINEAR. Writes nothing to
  /// stderr; OpenCV's messages become part of the error.
  /// \param pixels  [size.height, size.width, channels], contiguous.
  /// \throws DataError if the image is truncated or damaged; the contents of
  ///         `pixels` are then undefined.
  void decode(ImageSize size, uint8_t* pixels) const;

  /// Decodes the part of the upright image that is visible through `warp`.
  ///
  /// Uses the interpolation of `warp`. An image that shrinks to half or less is
  /// averaged first. For a JPEG, only the visible part is decoded, at 1/2, 1/4
  /// or 1/8 of its size where possible. With `warp.antialias` the result is
  /// within 1 of Pillow's BILINEAR. Allocates no memory in steady state.
  ///
  /// \param pixels  [size.height, size.width, channels], contiguous.
  /// \throws the errors of `decode`. Damage outside the visible part may not be
  ///         detected, but a JPEG without an end marker is an error.
  void sample(const Warp& warp, ImageSize size, uint8_t* pixels) const;

 private:
  /// Decodes the whole image as stored.
  void decode_stored(uint8_t* pixels) const;

  std::span<const uint8_t> bytes_;
  std::string_view path_;
  DecodeOptions options_;
  ImageHeader header_;
};

/// Decodes an image in its original size: [H, W, C] kByte.
/// \throws the errors of EncodedImage.
torch::Tensor decode_image(
    std::span<const uint8_t> bytes,
    std::string_view path = {},
    const DecodeOptions& options = {});

/// Reads an image file in its original size: [H, W, C] kByte.
/// \throws the errors of `read_image_file` and EncodedImage.
torch::Tensor read_image(
    const std::string& path,
    const DecodeOptions& options = {});

}  // namespace tern
