#include "tern/kernels/fused_optimizer.h"

#include <vector>

#include "tern/kernels/dispatch_device.h"
#include "tern/kernels/fused_optimizer_launch.h"
#include "tern/kernels/step_unpacker.h"

namespace tern {
namespace {

/// Tells autograd, as an in-place operation of ATen would.
void bump_versions(at::TensorList list) {
  for (const at::Tensor& tensor : list) {
    if (tensor.defined()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace

void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state) {
  if (tensors.params.empty()) {
    return;
  }
  StepUnpacker unpacker("fused_sgd_", tensors, grad_state);
  const bool has_momentum = args.momentum != 0;
  if (has_momentum) {
    unpacker.check_count("momentum_buffers", momentum_buffers);
  } else {
    unpacker.check_empty("momentum_buffers", momentum_buffers, "momentum is 0");
  }
  std::vector<SgdTensor> list(tensors.params.size());
  for (size_t i = 0; i < list.size(); ++i) {
    static_cast<StepTensor&>(list[i]) = unpacker.unpack(i);
    list[i].momentum_buffer =
        has_momentum
            ? unpacker.unpack_state("momentum_buffers", momentum_buffers, i)
            : nullptr;
  }
  const auto count = static_cast<int64_t>(list.size());
  dispatch_device(
      unpacker.device(),
      [&] { fused_sgd_cpu(list.data(), count, args, unpacker.grad_state()); },
      [&](auto stream) {
        return fused_sgd_cuda(
            list.data(),
            count,
            args,
            unpacker.grad_state(),
            stream);
      });
  bump_versions(tensors.params);
  bump_versions(tensors.weights);
  bump_versions(momentum_buffers);
}

void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state) {
  if (tensors.params.empty()) {
    return;
  }
  StepUnpacker unpacker("fused_adam_", tensors, grad_state);
  unpacker.check_count("exp_avgs", exp_avgs);
  unpacker.check_count("exp_avg_sqs", exp_avg_sqs);
  if (args.amsgrad) {
    unpacker.check_count("max_exp_avg_sqs", max_exp_avg_sqs);
  } else {
    unpacker.check_empty("max_exp_avg_sqs", max_exp_avg_sqs, "amsgrad is off");
  }
  std::vector<AdamTensor> list(tensors.params.size());
  for (size_t i = 0; i < list.size(); ++i) {
    AdamTensor& out = list[i];
    static_cast<StepTensor&>(out) = unpacker.unpack(i);
    out.exp_avg = unpacker.unpack_state("exp_avgs", exp_avgs, i);
    out.exp_avg_sq = unpacker.unpack_state("exp_avg_sqs", exp_avg_sqs, i);
    out.max_exp_avg_sq =
        args.amsgrad
            ? unpacker.unpack_state("max_exp_avg_sqs", max_exp_avg_sqs, i)
            : nullptr;
  }
  const auto count = static_cast<int64_t>(list.size());
  dispatch_device(
      unpacker.device(),
      [&] { fused_adam_cpu(list.data(), count, args, unpacker.grad_state()); },
      [&](auto stream) {
        return fused_adam_cuda(
            list.data(),
            count,
            args,
            unpacker.grad_state(),
            stream);
      });
  bump_versions(tensors.params);
  bump_versions(tensors.weights);
  bump_versions(exp_avgs);
  bump_versions(exp_avg_sqs);
  bump_versions(max_exp_avg_sqs);
}

}  // namespace tern
