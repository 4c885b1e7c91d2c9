#pragma once

#include <torch/types.h>

namespace tern {

/// The tensors and options of a BatchNorm in training.
struct BatchNormTensors {
  torch::Tensor weight, bias;               // [C] kFloat
  torch::Tensor running_mean, running_var;  // [C] kFloat, updated in place
  double momentum, eps;
};

/// True if `batch_norm_relu` supports these tensors: on a CPU, in kFloat or
/// kBFloat16, channels last, with a multiple of 16 channels. False if
/// individual operations must remain visible: in a trace, with keep_fp32, in an
/// audit, and with synchronized BatchNorm.
bool fits_batch_norm_relu(
    const torch::Tensor& images,
    const torch::Tensor& other,
    const BatchNormTensors& norm);

/// Computes `relu(batch_norm(images) + other)` in training, in two passes over
/// memory: one for the statistics of `images`, one for the result. Backward
/// also makes two passes. LibTorch's separate operations need eight.
/// \param images  [N, C, H, W] that `fits_batch_norm_relu` accepts.
/// \param other   Same size and dtype; undefined: nothing is added.
/// \param relu    False: returns the sum.
torch::Tensor batch_norm_relu(
    const torch::Tensor& images,
    const torch::Tensor& other,
    const BatchNormTensors& norm,
    bool relu);

}  // namespace tern
