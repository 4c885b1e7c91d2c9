#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/image_preprocessing.h"
#include "tern/data/output_info.h"
#include "tern/vision/datasets/preprocess.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// Maps pixels of a model's input to pixels of the original image ("photo")
/// that it was prepared from, to show predictions on that image.
///
///   PhotoGeometry geometry(*predictor.card().preprocessing, {1080, 1920});
///   torch::Tensor eyes =
///       geometry.points_on_photo(torch::tensor({{31.5, 40.2}}));
///
/// Pixels are squares: the first pixel spans 0 to 1 and its center is at 0.5.
class PhotoGeometry {
 public:
  /// \param photo  Height and width of the photo as displayed: after the EXIF
  ///               orientation, if `what` applies it.
  /// \throws c10::ValueError for an empty size, a size that the model does not
  ///         accept, or an unknown resizing or padding method.
  PhotoGeometry(const ImagePreprocessing& what, ImageSize photo);
  /// Uses a dataset's preprocessing in evaluation.
  /// \param input  Height and width of the model's input.
  /// \throws c10::ValueError as above, and if the dataset's transforms rotate
  ///         or distort an image.
  PhotoGeometry(
      const ImagePreprocessor& images,
      ImageSize input,
      ImageSize photo);

  /// Converts points from pixels of the input to pixels of the photo.
  /// \param points  [..., 2] floating: x, y.
  torch::Tensor points_on_photo(const torch::Tensor& points) const;

  /// Converts boxes from pixels of the input to pixels of the photo, and clips
  /// them to it.
  /// \param boxes  [..., 4] floating: x1, y1, x2, y2.
  torch::Tensor boxes_on_photo(const torch::Tensor& boxes) const;

  /// Converts the detections of a sample to pixels of the photo. Detections in
  /// the padding, entirely outside the photo, are dropped.
  /// \param detections  Boxes [D, 4], scores [D] and labels [D], as
  ///                    `decode_detections` returns them for an image.
  /// \return            The same shapes and dtypes, by descending score.
  Tensors detections_on_photo(const Tensors& detections) const;

  /// Resamples a map over the model's input, such as probabilities of pixels,
  /// to the pixels of the photo. Interpolates bilinearly between the centers of
  /// the map's pixels.
  /// \param map  [C, h, w] floating, covering the whole input; h and w can
  ///             differ from the input's height and width.
  /// \return     [C, height, width] of the photo, kFloat on the CPU. Padding is
  ///             removed. Parts of the photo that a crop removed are 0, because
  ///             the model did not see them.
  torch::Tensor map_on_photo(const torch::Tensor& map) const;

  /// Converts the outputs of a model for one sample: detections, boxes and
  /// points, and with `masks` also masks.
  /// \param outputs  Activated, without the batch dimension; may be undefined.
  /// \return  All outputs. Those without a position in the image, and those
  ///          without an entry in `info`, are returned unchanged.
  Tensors outputs_on_photo(
      const Tensors& outputs,
      const std::vector<OutputInfo>& info,
      bool masks) const;

 private:
  /// For x or y: a position in the photo is `scale * position in the input +
  /// offset`.
  struct Axis {
    int64_t input = 0, photo = 0;
    double scale = 1, offset = 0;
  };
  struct Samples;
  static Samples samples_of(const Axis& axis, int64_t map);

  Axis x_, y_;
};

/// True if a model predicts boxes or points, which are pixels of its input.
bool has_places(const std::vector<OutputInfo>& info);

}  // namespace tern
