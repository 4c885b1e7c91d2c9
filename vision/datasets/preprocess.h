#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <opencv2/core/mat.hpp>
#include <torch/types.h>

#include "tern/data/image_preprocessing.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/transforms/augment_batch.h"

namespace tern {

/// Describes the preprocessing of an image in evaluation: the preprocessing of
/// `images`, then `normalize` with `stats`. Unset if a transform cannot be
/// described.
std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats);

/// Prepares images for a model as a dataset does in evaluation. Thread-safe.
class ImagePreprocessor {
 public:
  /// \throws c10::ValueError for an unknown resize or padding method.
  explicit ImagePreprocessor(const ImagePreprocessing& what);
  /// Prepares images as `images` does in evaluation, but accepts any image
  /// size.
  explicit ImagePreprocessor(const ImageDataset& images);

  /// Reads an image file and returns it as [height, width, channels] kByte.
  /// \param size  Receives the height and width of the image after its EXIF
  ///              rotation.
  /// \throws IoError; the DataError of EncodedImage; DataError if the model
  ///         accepts only one image size and the image has a different size.
  torch::Tensor read(const std::string& path, ImageSize* size = nullptr) const;
  /// Prepares an OpenCV image: gray, BGR or BGRA with 8 or 16 bits.
  /// \param where  Name of the caller, for error messages.
  torch::Tensor convert(const cv::Mat& image, std::string_view where) const;
  /// Prepares an image tensor.
  /// \param image  [H, W] or [H, W, 1 or 3] kByte, RGB.
  torch::Tensor convert(const torch::Tensor& image) const;

  /// Returns the matrix from pixels of the prepared image to pixels of the
  /// original image.
  /// \param image  Size of the original image.
  Matrix3 matrix(ImageSize image) const;

  int64_t channels() const { return decode_.channels; }

 private:
  template <class Sample>
  torch::Tensor prepared(
      ImageSize image,
      const std::string& path,
      const Sample& sample) const;
  torch::Tensor convert_pixels(const cv::Mat& pixels, bool is_rgb) const;

  ImageSize size_;
  bool is_exact_ = false;  // accepts only images of size_
  DecodeOptions decode_;
  TransformOptions sizing_;
  Transforms transforms_;
};

}  // namespace tern
