#include "tern/vision/decode.h"

#include <string>

#include "tern/data/formats/error.h"
#include "tern/vision/decode_jpeg.h"
#include "tern/vision/decode_opencv.h"
#include "tern/vision/decode_png.h"
#include "tern/vision/image_file.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {
namespace {

ImageSize turned(ImageSize size, int orientation) {
  return orientation >= 5 ? ImageSize{size.width, size.height} : size;
}

}  // namespace

EncodedImage::EncodedImage(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const DecodeOptions& options)
    : bytes_(bytes),
      path_(path),
      options_(options),
      header_(read_image_header(bytes, path, options.max_pixels)) {
  TORCH_CHECK_VALUE(
      options.channels == 1 || options.channels == 3,
      "[EncodedImage] channels is ",
      options.channels,
      "; expected 3 (RGB) or 1 (grey).");
  if (header_.format == ImageFormat::gif) {
    throw DataError(
        std::string(path),
        "is a GIF, which Tern does not read. Convert it to PNG or remove it.");
  }
  if (!options.exif_orientation) {
    header_.orientation = 1;
  }
}

ImageSize EncodedImage::size() const {
  return turned(stored_size(), header_.orientation);
}

void EncodedImage::decode_stored(ImageSize size, uint8_t* pixels) const {
  switch (header_.format) {
    case ImageFormat::jpeg:
      decode_jpeg(
          bytes_,
          path_,
          header_,
          size,
          options_.channels,
          options_.lenient,
          pixels);
      break;
    case ImageFormat::png:
      decode_png(bytes_, path_, header_, options_.channels, pixels);
      break;
    default:
      decode_opencv(bytes_, path_, header_, options_.channels, pixels);
      break;
  }
}

void EncodedImage::decode(ImageSize size, uint8_t* pixels) const {
  static thread_local ScratchBuffer decoded_buffer, resized_buffer;
  const int64_t channels = options_.channels;
  const bool is_upright = header_.orientation == 1;
  const bool is_jpeg = header_.format == ImageFormat::jpeg;
  // Everything but the last step happens in the stored orientation.
  const ImageSize wanted = turned(size, header_.orientation);
  const ImageSize decoded =
      is_jpeg ? jpeg_scaled_size(stored_size(), wanted) : stored_size();
  const bool is_sized = decoded == wanted;

  uint8_t* target =
      is_sized && is_upright
          ? pixels
          : decoded_buffer.get(decoded.height * decoded.width * channels);
  decode_stored(decoded, target);
  if (!is_sized) {
    uint8_t* resized =
        is_upright
            ? pixels
            : resized_buffer.get(wanted.height * wanted.width * channels);
    resize_image(target, decoded, channels, !is_jpeg, wanted, resized);
    target = resized;
  }
  if (!is_upright) {
    turn_upright(target, wanted, channels, header_.orientation, pixels);
  }
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
