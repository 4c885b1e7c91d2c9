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

/// Describes what `images`, in evaluation, and then `normalize` with `stats` do
/// to an image; empty if one of the transforms cannot be described.
std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats);

/// Prepares images for a model as in evaluation, without a dataset.
/// Thread-safe.
class ImagePreprocessor {
 public:
  /// \throws c10::ValueError for an unknown way to resize or to pad.
  explicit ImagePreprocessor(const ImagePreprocessing& what);
  /// Does what `images` does in evaluation, for images of any size.
  explicit ImagePreprocessor(const ImageDataset& images);

  /// Returns an image file as [height, width, channels] kByte.
  /// \throws IoError, DataError as EncodedImage, or if the model takes images
  ///         of one size only and this is another.
  /// \param size  Gets the height and width of the image, turned upright.
  torch::Tensor read(const std::string& path, ImageSize* size = nullptr) const;
  /// The same for an image of OpenCV: gray, BGR or BGRA with 8 or 16 bits.
  /// \param where  The caller, for error messages.
  torch::Tensor convert(const cv::Mat& image, std::string_view where) const;
  /// The same for [H, W] or [H, W, 1 or 3] kByte, RGB.
  torch::Tensor convert(const torch::Tensor& image) const;

  /// From pixels of what is made of an image of this size to the image's own.
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
  bool is_exact_ = false;  // accepts images of size_ only
  DecodeOptions decode_;
  TransformOptions sizing_;
  Transforms transforms_;
};

}  // namespace tern
