#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

/// Atrous spatial pyramid pooling: mixes what 3x3 convolutions of several
/// dilations see, a 1x1 convolution, and the mean of the whole picture (Chen et
/// al., "Rethinking Atrous Convolution for Semantic Image Segmentation",
/// section 3.3). torchvision's ASPP, with its names in the state dict: `convs`
/// and `project`.
class AsppImpl : public torch::nn::Cloneable<AsppImpl> {
 public:
  /// \param rates  Dilations of the 3x3 convolutions.
  AsppImpl(int64_t in, std::vector<int64_t> rates, int64_t out = 256);
  void reset() override;
  /// [N, in, H, W] -> [N, out, H, W].
  /// \throws c10::ValueError for N = 1 in training: the mean of one picture
  ///         cannot be normalised over the batch.
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t in_, out_;
  std::vector<int64_t> rates_;
  torch::nn::ModuleList convs_{nullptr};
  torch::nn::Sequential project_{nullptr};
};
TORCH_MODULE(Aspp);

}  // namespace tern
