#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <torch/types.h>

#include "tern/data/formats/image_header.h"
#include "tern/kernels/warp_image.h"
#include "tern/vision/image_size.h"

namespace tern {

struct EncodedBytes;

struct DecodeOptions {
  /// 3: RGB, grey is repeated. 1: grey, colours are weighed as by OpenCV
  /// (0.299, 0.587, 0.114).
  int64_t channels = 3;
  /// Turns the image upright as its EXIF says, like cv::IMREAD_COLOR; fastai
  /// does not.
  bool exif_orientation = true;
  /// Accepts a JPEG that is cut or damaged, with grey where pixels are missing.
  bool lenient = false;
  /// Limit on width x height, checked before anything is allocated.
  int64_t max_pixels = kMaxPixels;
  /// The numbers that a PNG stores, not the colours they stand for: a mask of
  /// class numbers. Needs channels 1.
  bool indices = false;
};

/// An image file in memory whose header has been read and found good. A view:
/// bytes and path must outlive it.
///
///   EncodedImage image(bytes, "cat.jpg");
///   auto pixels = torch::empty({224, 224, 3}, torch::kByte);
///   image.decode({224, 224}, pixels.data_ptr<uint8_t>());
///
/// Reads JPEG, PNG, WebP, BMP and TIFF, told apart by content. Alpha is
/// dropped, a palette looked up, 16 bits divided by 257, CMYK taken as Adobe
/// writes it (inverted).
class EncodedImage {
 public:
  /// \param bytes  The whole file.
  /// \param path   Its name, for error messages.
  /// \throws DataError, see `read_image_header`; ValueError for bad options.
  EncodedImage(
      std::span<const uint8_t> bytes,
      std::string_view path,
      const DecodeOptions& options = {});

  /// Height and width as `decode` gives them, after turning upright.
  ImageSize size() const;

  /// Decodes into `pixels`, [size.height, size.width, channels], contiguous.
  /// With a `size` other than `size()` the image is stretched to it.
  /// \throws DataError if the image is cut or damaged; what is in `pixels` is
  ///         then undefined.
  ///
  /// Nothing is written to stderr, whatever is wrong with a file; what OpenCV
  /// has to say about one becomes a part of the error.
  void decode(ImageSize size, uint8_t* pixels) const;

  /// Decodes what `warp` shows of the upright image.
  /// \param pixels  [size.height, size.width, channels], contiguous.
  /// \throws as `decode`. What no pixel shows may be damaged unnoticed, but a
  ///         JPEG without its end is found.
  ///
  /// Bilinear: an image that shrinks to half or less is averaged first, a JPEG
  /// by decoding it at 1/2, 1/4 or 1/8, and only the part that is seen is
  /// decoded of it. In steady state nothing is allocated.
  void sample(const Warp& warp, ImageSize size, uint8_t* pixels) const;

 private:
  /// Size before turning upright.
  ImageSize stored_size() const { return {header_.height, header_.width}; }
  EncodedBytes encoded() const;
  /// The whole image as stored.
  void decode_stored(uint8_t* pixels) const;

  std::span<const uint8_t> bytes_;
  std::string_view path_;
  DecodeOptions options_;
  ImageHeader header_;
};

/// The image in `bytes` as [H, W, C] kByte in its own size.
/// \throws as EncodedImage.
torch::Tensor decode_image(
    std::span<const uint8_t> bytes,
    std::string_view path = {},
    const DecodeOptions& options = {});

/// The image in a file as [H, W, C] kByte in its own size.
/// \throws as `read_image_file` and EncodedImage.
torch::Tensor read_image(
    const std::string& path,
    const DecodeOptions& options = {});

}  // namespace tern
