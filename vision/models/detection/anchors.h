#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

struct AnchorOptions {
  /// For each level, from high to low resolution: side lengths of its square
  /// anchors, in pixels.
  std::vector<std::vector<double>> sizes;
  /// For each level: ratios of height to width.
  std::vector<std::vector<double>> aspect_ratios;

  /// Returns RetinaNet's options: five levels with three sizes and three aspect
  /// ratios each.
  /// \param smallest  Side of the smallest square on the finest level. The side
  ///                  doubles with each coarser level.
  /// \throws c10::ValueError unless `smallest` is finite and at least 2.
  static AnchorOptions retinanet(double smallest = 32);
};

/// Computes the anchor boxes that a detector's box outputs are relative to.
/// Each position of each level is the center of one anchor per size and aspect
/// ratio. Same as torchvision's AnchorGenerator. Has no parameters.
///
///   AnchorGenerator anchors(AnchorOptions::retinanet());
///   anchors->forward(images.size(2), images.size(3), levels);   // [A, 4]
class AnchorGeneratorImpl : public torch::nn::Cloneable<AnchorGeneratorImpl> {
 public:
  /// \throws c10::ValueError unless there is at least one level, sizes and
  ///         ratios are given for the same number of levels, and all are
  ///         positive.
  explicit AnchorGeneratorImpl(AnchorOptions options);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  // The anchors stay kFloat and move to the network's device.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking) override;
  void to(torch::Device device, bool non_blocking) override;
  using Module::to;

  /// Returns the number of anchors per position for each level.
  std::vector<int64_t> anchors_per_location() const;
  /// \param height, width  Size of the images.
  /// \param feature_maps   [N, C, H_i, W_i] of each level; only their sizes and
  ///                       device are used.
  /// \return  [A, 4] kFloat on the device of the maps: x1, y1, x2, y2 in
  ///          pixels, ordered by level, then row. Anchors near the edges extend
  ///          beyond the image.
  /// \throws c10::ValueError if the number of maps differs from the number of
  ///         levels, or if a map is empty.
  torch::Tensor
  forward(int64_t height, int64_t width, const Tensors& feature_maps);
  /// Returns the anchors for images [N, C, H, W]. While tracing, computes them
  /// from the sizes of the input tensors, so that the traced graph accepts
  /// images of other sizes.
  torch::Tensor forward(
      const torch::Tensor& images,
      const Tensors& feature_maps);

 private:
  void check(const Tensors& feature_maps) const;

  AnchorOptions options_;
  Tensors cell_anchors_;  // of each level: [a, 4], centered at 0
};
TORCH_MODULE(AnchorGenerator);

/// Returns height and width of each image of [N, C, H, W] as [N, 2] kFloat.
/// While tracing, computes them from the tensor, so that the graph accepts
/// other sizes.
torch::Tensor image_sizes(const torch::Tensor& images);

/// Pads images [N, C, H, W] with zeros at the right and at the bottom, so that
/// height and width are multiples of `multiple`, like `batch_images` of
/// torchvision's GeneralizedRCNNTransform. Feature maps with strides that
/// divide `multiple` then cover the images exactly. While tracing, computes the
/// padding from the tensor, so that the graph accepts other sizes.
torch::Tensor pad_images(const torch::Tensor& images, int64_t multiple);

}  // namespace tern
