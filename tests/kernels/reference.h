#pragma once

#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"

/// The kernels' definitions in ATen operations. Each operation rounds as the
/// kernels do, so the results are bit-identical on a CPU.
namespace tern::reference {

void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state = {});

void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state = {});

torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype = torch::kFloat);

void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf);

void check_finite(at::TensorList grads, torch::Tensor found_inf);

}  // namespace tern::reference
