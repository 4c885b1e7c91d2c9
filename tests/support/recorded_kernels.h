#pragma once

#include <string>

#include <ATen/core/stack.h>
#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/kernels/optim/unscale_and_check.h"

namespace tern::testing_support {

/// Runs a Tern kernel again, by the name and inputs that it reported to
/// LibTorch's profiler; leaves `inputs` empty.
/// \throws c10::Error for an optimizer whose learning rate is not on the
/// device.
inline void run_recorded_kernel(
    const std::string& name,
    torch::jit::Stack& inputs) {
  const auto tensor = [&](size_t i) { return inputs.at(i).toTensor(); };
  const auto list = [&](size_t i) { return inputs.at(i).toTensorVector(); };
  if (name == "tern::unscale_and_check_") {
    unscale_and_check_(list(0), tensor(2), tensor(1));
  } else if (name == "tern::check_finite") {
    check_finite(list(0), tensor(1));
  } else {
    const std::vector<torch::Tensor> params = list(0), grads = list(1),
                                     weights = list(2), steps = list(3),
                                     first = list(7);
    const OptimizerTensors tensors{params, grads, weights, steps};
    const GradState state{
        inputs.at(4).toOptional<torch::Tensor>(),
        inputs.at(5).toOptional<torch::Tensor>()};
    const torch::Tensor args_on_device = tensor(6);
    TORCH_CHECK(args_on_device.defined(), name, " reads its rates on the host");
    if (name == "tern::fused_sgd_") {
      const FusedSgdArgs args{.momentum = first.empty() ? 0.0 : 1.0};
      fused_sgd_(tensors, first, args, state, args_on_device);
    } else {
      TORCH_CHECK(name == "tern::fused_adam_", name, " is not known here");
      const std::vector<torch::Tensor> second = list(8), largest = list(9);
      const FusedAdamArgs args{.amsgrad = !largest.empty()};
      fused_adam_(tensors, first, second, largest, args, state, args_on_device);
    }
  }
  inputs.clear();
}

}  // namespace tern::testing_support
