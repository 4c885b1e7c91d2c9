#pragma once

#include <torch/types.h>

#include "tern/data/image_preprocessing.h"
#include "tern/vision/datasets/preprocess.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// Where the pixels of a model's input lie in the photograph that it was
/// prepared from: to bring back there what the model has found.
///
///   PhotoGeometry geometry(*predictor.card().preprocessing, {1080, 1920});
///   torch::Tensor eyes = geometry.points_on_photo(torch::tensor({{31.5, 40.2}}));
///
/// Pixels are squares: the first one spans 0 to 1, and its center is 0.5.
class PhotoGeometry {
 public:
  /// \param photo  Height and width, as seen: after the EXIF orientation, where
  ///               `what` applies it.
  /// \throws c10::ValueError for a size without pixels, or one that the model
  ///         does not take; or an unknown way to resize or to pad.
  PhotoGeometry(const ImagePreprocessing& what, ImageSize photo);
  /// The same of what a dataset does in evaluation.
  /// \param input  Height and width of the model's input.
  /// \throws c10::ValueError too if its transforms turn or distort an image.
  PhotoGeometry(
      const ImagePreprocessor& images,
      ImageSize input,
      ImageSize photo);

  /// Converts points in pixels of the input to pixels of the photograph.
  /// \param points  [..., 2] floating: x, y.
  torch::Tensor points_on_photo(const torch::Tensor& points) const;

  /// Converts boxes in pixels of the input to pixels of the photograph, clipped to
  /// it.
  /// \param boxes  [..., 4] floating: x1, y1, x2, y2.
  torch::Tensor boxes_on_photo(const torch::Tensor& boxes) const;

  /// Gives each pixel of the photograph what is said of its place in the input,
  /// bilinear between the centers of the map's pixels.
  /// \param map  [C, h, w] floating, over the whole input; h and w may be
  ///             others than its height and width.
  /// \return     [C, height, width] of the photograph, on the CPU in kFloat. The
  ///             padding is cut off; what a crop has left out, which the model
  ///             has not seen, is 0.
  torch::Tensor map_on_photo(const torch::Tensor& map) const;

 private:
  /// Of x or y: a place in the photograph is `scale * place + offset`.
  struct Axis {
    int64_t input = 0, photo = 0;
    double scale = 1, offset = 0;
  };
  struct Samples;
  static Samples samples_of(const Axis& axis, int64_t map);

  Axis x_, y_;
};

}  // namespace tern
