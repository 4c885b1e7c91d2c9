#include "tern/kernels/fused_optimizer.h"

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "tern/kernels/dispatch_device.h"
#include "tern/kernels/fused_optimizer_launch.h"
#include "tern/kernels/fused_optimizer_math.h"
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

template <class Args>
torch::Tensor bytes_of(const Args& args, torch::Device device) {
  const auto host = torch::empty({sizeof(Args)}, torch::kByte);
  std::memcpy(host.data_ptr(), &args, sizeof(Args));
  return host.to(device);
}

// Null where `tensor` is undefined.
template <class Args>
const Args*
args_in(const char* where, const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined()) return nullptr;
  TORCH_CHECK_VALUE(
      tensor.scalar_type() == torch::kByte && tensor.is_contiguous() &&
          tensor.numel() == sizeof(Args) && tensor.device() == device,
      fmt::format(
          "[{}] args_on_device is {} {} on {}; expected {} bytes on {}, as "
          "to_tensor makes them of the same arguments.",
          where,
          tensor.numel(),
          c10::toString(tensor.scalar_type()),
          tensor.device().str(),
          sizeof(Args),
          device.str()));
  return static_cast<const Args*>(tensor.const_data_ptr());
}

}  // namespace

torch::Tensor to_tensor(const FusedSgdArgs& args, torch::Device device) {
  return bytes_of(args, device);
}

torch::Tensor to_tensor(const FusedAdamArgs& args, torch::Device device) {
  return bytes_of(args, device);
}

void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state,
    const torch::Tensor& args_on_device) {
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
  const auto* there =
      args_in<FusedSgdArgs>("fused_sgd_", args_on_device, unpacker.device());
  dispatch_device(
      unpacker.device(),
      [&] {
        fused_sgd_cpu(
            list.data(),
            count,
            args_now(args, there),
            unpacker.grad_state());
      },
      [&](auto stream) {
        return fused_sgd_cuda(
            list.data(),
            count,
            args,
            there,
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
    const GradState& grad_state,
    const torch::Tensor& args_on_device) {
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
  const auto* there =
      args_in<FusedAdamArgs>("fused_adam_", args_on_device, unpacker.device());
  dispatch_device(
      unpacker.device(),
      [&] {
        fused_adam_cpu(
            list.data(),
            count,
            args_now(args, there),
            unpacker.grad_state());
      },
      [&](auto stream) {
        return fused_adam_cuda(
            list.data(),
            count,
            args,
            there,
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
