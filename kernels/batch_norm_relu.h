#pragma once

#include <torch/types.h>

namespace tern {

/// Of a BatchNorm in training.
struct BatchNormTensors {
  torch::Tensor weight, bias;               // [C] kFloat
  torch::Tensor running_mean, running_var;  // [C] kFloat, which move
  double momentum, eps;
};

/// Whether `batch_norm_relu` takes these, and nobody watches single operations
/// (the layers of keep_fp32, an audit, BatchNorm over several ranks): on a CPU,
/// in kFloat or kBFloat16, channels last.
bool fits_batch_norm_relu(
    const torch::Tensor& images,
    const torch::Tensor& other,
    const BatchNormTensors& norm);

/// `relu(batch_norm(images) + other)` in training: the statistics are those of
/// `images`, in one pass over them, and one more computes the result. So does
/// backward, where LibTorch's separate operations need eight.
/// \param images  [N, C, H, W] that `fits_batch_norm_relu`.
/// \param other   Of the same size and type; undefined: nothing is added.
/// \param relu    Without it, the sum is the result.
torch::Tensor batch_norm_relu(
    const torch::Tensor& images,
    const torch::Tensor& other,
    const BatchNormTensors& norm,
    bool relu);

}  // namespace tern
