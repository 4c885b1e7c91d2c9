#include "tern/vision/decode/decode.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/decode/decoders.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/sample_pixels.h"

namespace tern {
namespace {

/// Returns the denominator of the smallest scale at which libjpeg-turbo decodes
/// at least the required size. With `antialias` the scale is larger, so that
/// resizing gives the same pixels as after decoding at full size, to within 1
/// even for noise.
int jpeg_denominator(ImageSize factors, bool antialias) {
  const int64_t factor = std::min(factors.height, factors.width);
  if (antialias)
    return factor >= 40 ? 8 : factor >= 24 ? 4 : factor >= 16 ? 2 : 1;
  return factor >= 8 ? 8 : factor >= 4 ? 4 : factor >= 2 ? 2 : 1;
}

}  // namespace

Matrix3 stored_from_upright(int orientation, ImageSize stored) {
  const auto width = static_cast<double>(stored.width);
  const auto height = static_cast<double>(stored.height);
  const Matrix3 by_orientation[] = {
      {},
      {{-1, 0, width, 0, 1, 0, 0, 0, 1}},
      {{-1, 0, width, 0, -1, height, 0, 0, 1}},
      {{1, 0, 0, 0, -1, height, 0, 0, 1}},
      {{0, 1, 0, 1, 0, 0, 0, 0, 1}},
      {{0, 1, 0, -1, 0, height, 0, 0, 1}},
      {{0, -1, width, -1, 0, height, 0, 0, 1}},
      {{0, -1, width, 1, 0, 0, 0, 0, 1}}};
  return by_orientation[orientation - 1];
}

bool has_shape_of(ImageSize size, ImageSize other) {
  return std::abs(size.height * other.width - size.width * other.height) <=
         std::max(size.height, size.width);
}

bool may_be_turned(
    int image_orientation,
    ImageSize image,
    int mask_orientation,
    ImageSize mask) {
  if (image_orientation == 1 || mask_orientation != 1) return false;
  const bool lies = image_orientation >= 5;
  return !lies || has_shape_of(mask, {image.width, image.height});
}

EncodedImage::EncodedImage(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const DecodeOptions& options)
    : bytes_(bytes),
      path_(path),
      options_(options),
      header_(read_image_header(bytes, path, options.max_pixels)) {
  TERN_CHECK_VALUE(
      options.channels == 1 || (options.channels == 3 && !options.indices),
      "[EncodedImage] channels is {}; expected 3 (RGB) or 1 (gray or class "
      "indices).",
      options.channels);
  if (options.indices && header_.format != ImageFormat::png) {
    throw_data_error(
        std::string(path),
        "is a {} file; expected a mask as PNG, which is lossless.",
        to_string(header_.format));
  }
  if (header_.format == ImageFormat::gif) {
    throw DataError(
        std::string(path),
        "is a GIF, which Tern does not read. Convert it to PNG or remove it.");
  }
  if (!options.exif_orientation) header_.orientation = 1;
}

void EncodedImage::decode_stored(uint8_t* pixels) const {
  const auto decode = header_.format == ImageFormat::jpeg  ? decode_jpeg
                      : header_.format == ImageFormat::png ? decode_png
                      : header_.format == ImageFormat::pnm ? decode_pnm
                                                           : decode_opencv;
  decode(*this, pixels);
}

void EncodedImage::decode(ImageSize size, uint8_t* pixels) const {
  const auto [down, across] = pixels_per_pixel(this->size(), size);
  sample(
      {.matrix = Matrix3::scaling(across, down), .antialias = true},
      size,
      pixels);
}

void EncodedImage::sample(const Warp& warp, ImageSize size, uint8_t* pixels)
    const {
  static thread_local ScratchBuffer buffer;
  const int64_t channels = options_.channels;
  const ImageSize stored = stored_size();
  Warp from_stored = warp;
  if (header_.orientation != 1) {
    from_stored.matrix =
        stored_from_upright(header_.orientation, stored) * warp.matrix;
    if (header_.orientation >= 5) {
      std::swap(from_stored.jitter_x, from_stored.jitter_y);
    }
  }
  if (from_stored.matrix == Matrix3{} && size == stored && warp.jitter_x == 0 &&
      warp.jitter_y == 0) {
    decode_stored(pixels);
    return;
  }
  ImageRegion part{0, 0, stored.height, stored.width};
  if (header_.format == ImageFormat::jpeg) {
    const int denominator = warp.sampling == Sampling::nearest
                                ? 1
                                : jpeg_denominator(
                                      shrink_factors(from_stored.matrix, size),
                                      is_antialiased(from_stored));
    const ImageSize factors = denominator;
    const ImageRegion wanted = seen_region(
        shrunk(from_stored, factors, {}),
        size,
        jpeg_scaled_size(stored, denominator));
    part = decode_jpeg_region(*this, denominator, wanted, buffer);
    from_stored = shrunk(from_stored, factors, part);
  } else {
    decode_stored(buffer.get(stored.height * stored.width * channels));
  }
  const PixelView decoded = view_of(
      buffer.data(),
      {part.height, part.width},
      channels,
      buffer.data() + buffer.size());
  sample_pixels(decoded, from_stored, size, pixels);
}

torch::Tensor decode_image(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const DecodeOptions& options) {
  const EncodedImage image(bytes, path, options);
  const ImageSize size = image.size();
  torch::Tensor pixels =
      torch::empty({size.height, size.width, options.channels}, torch::kByte);
  image.decode(size, pixels.mutable_data_ptr<uint8_t>());
  return pixels;
}

torch::Tensor read_image(
    const std::string& path,
    const DecodeOptions& options) {
  static thread_local ScratchBuffer buffer;
  return decode_image(read_image_file(path, buffer), path, options);
}

}  // namespace tern
