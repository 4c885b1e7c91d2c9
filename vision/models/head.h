#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

struct HeadOptions {
  /// Widths of the layers between features and outputs; may be none.
  std::vector<int64_t> hidden = {512};
  /// Share of values dropped before the last layer; half of it before others.
  double dropout = 0.5;
  /// Both the largest and the mean value of each feature; false: the mean.
  bool concat_pool = true;
};

/// The largest value of each channel, then the mean of each: [N, C, H, W] ->
/// [N, 2 * C]. fastai's AdaptiveConcatPool2d with Flatten.
class ConcatPoolImpl : public torch::nn::Cloneable<ConcatPoolImpl> {
 public:
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(ConcatPool);

/// What turns a body's features into answers: pooling, then for each layer
/// BatchNorm, dropout and a linear layer, with ReLU between. fastai v2's
/// create_head: its layers, names and initial weights (He's; a linear layer has
/// no bias, since the norm before it has one).
///
///   classifier_head(512, 10)->forward(features);   // [N, 10], logits
///
/// \param features  Channels of [N, features, H, W].
/// \throws c10::ValueError unless all widths are positive and dropout is in
///         [0, 1).
torch::nn::Sequential classifier_head(
    int64_t features,
    int64_t outputs,
    const HeadOptions& options = {});

}  // namespace tern
