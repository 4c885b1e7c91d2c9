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
  /// Of each level, from fine to coarse: the sides of its square anchors, in
  /// pixels.
  std::vector<std::vector<double>> sizes;
  /// Of each level: height over width.
  std::vector<std::vector<double>> aspect_ratios;

  /// RetinaNet's: five levels, three sizes and three ratios in each.
  /// \param smallest  Side of the finest level's smallest square; of each further
  ///                  level it is twice as long.
  /// \throws c10::ValueError unless it is finite and >= 2.
  static AnchorOptions retinanet(double smallest = 32);
};

/// Returns the boxes that a detector's outputs are relative to: at each
/// position of each level one for each size and ratio, centered there.
/// torchvision's AnchorGenerator. It has no parameters.
///
///   AnchorGenerator anchors(AnchorOptions::retinanet());
///   anchors->forward(images.size(2), images.size(3), levels);   // [A, 4]
class AnchorGeneratorImpl : public torch::nn::Cloneable<AnchorGeneratorImpl> {
 public:
  /// \throws c10::ValueError unless there are positive sizes and ratios for at
  ///         least one level, and for as many levels.
  explicit AnchorGeneratorImpl(AnchorOptions options);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  // The anchors stay kFloat and go where the network goes.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking) override;
  void to(torch::Device device, bool non_blocking) override;
  using Module::to;

  /// Anchors at each position, of each level.
  std::vector<int64_t> anchors_per_location() const;
  /// \param height, width  Of the images.
  /// \param feature_maps   [N, C, H_i, W_i] of each level; only their sizes and
  ///                       their device count.
  /// \return  [A, 4] kFloat on their device: x1, y1, x2, y2 in pixels, level by
  ///          level, row by row; partly outside the image near its edges.
  /// \throws c10::ValueError for another number of levels, or an empty one.
  torch::Tensor
  forward(int64_t height, int64_t width, const Tensors& feature_maps);
  /// The same of images [N, C, H, W]. A trace computes the anchors from the
  /// tensors, so that its graph takes images of other sizes.
  torch::Tensor forward(
      const torch::Tensor& images,
      const Tensors& feature_maps);

 private:
  void check(const Tensors& feature_maps) const;

  AnchorOptions options_;
  Tensors cell_anchors_;  // of each level, [a, 4], around 0
};
TORCH_MODULE(AnchorGenerator);

/// Returns height and width of each image [N, C, H, W]: [N, 2] kFloat. A trace
/// computes them from the tensor.
torch::Tensor image_sizes(const torch::Tensor& images);

}  // namespace tern
