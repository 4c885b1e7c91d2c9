#pragma once

#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"

/// The kernels in operations of ATen: their definition. Each operation rounds
/// as the kernels' do, so that the results agree bit for bit on a CPU.
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
