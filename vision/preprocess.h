#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <opencv2/core/mat.hpp>
#include <torch/types.h>

#include "tern/data/image_preprocessing.h"
#include "tern/kernels/warp_image.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_stats.h"

namespace tern {

/// An image of OpenCV with 8 bits, its colours as they are; 16 bits are divided
/// by 257, as those of files are. Shares the memory of one that has 8.
///
/// \param where  Who asks, for the error message.
/// \throws c10::ValueError unless it is grey, BGR or BGRA with 8 or 16 bits.
cv::Mat with_8_bits(const cv::Mat& image, std::string_view where);

/// What `images`, not for training, and then `normalize` with `stats` do to an
/// image. Nothing if a transform cannot be described.
std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats);

/// Does it, without a data set. Safe from any number of threads.
class ImagePreprocessor {
 public:
  /// \throws c10::ValueError for a word that is none of ImagePreprocessing's.
  explicit ImagePreprocessor(const ImagePreprocessing& what);

  /// An image file as [height, width, channels] kByte.
  /// \throws IoError, DataError as EncodedImage, or if the model takes one size
  ///         alone and this is another.
  torch::Tensor read(const std::string& path) const;
  /// The same for pixels, of as many channels as the model takes.
  torch::Tensor convert(const PixelView& image) const;
  /// [N, height, width, channels] kByte -> [N, C, H, W], normalised.
  torch::Tensor normalize(const torch::Tensor& images, torch::ScalarType dtype)
      const;

  const ImagePreprocessing& what() const { return what_; }

 private:
  ImageSize size() const { return {what_.height, what_.width}; }
  Warp warp_for(ImageSize image, const std::string& path) const;

  ImagePreprocessing what_;
  TransformOptions sizing_;
  Transforms transforms_;
};

}  // namespace tern
