#include "tern/kernels/unscale_and_check.h"

#include <atomic>
#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include "tern/kernels/checks.h"
#include "tern/kernels/parallel_for.h"
#include "tern/kernels/unscale_and_check_math.h"

namespace tern {
namespace {

void unscale_and_check_cpu(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf) {
  const UnscaleLoops& loops = TERN_SELECT_LOOPS(unscale_loops);
  const bool only_check = !inv_scale || *inv_scale == 1;
  std::vector<int64_t> sizes(count);
  for (int64_t i = 0; i < count; ++i) {
    sizes[i] = grads[i].size;
  }
  std::atomic<bool> found{false};
  parallel_elements(sizes, [&](size_t i, int64_t begin, int64_t end) {
    const ElementType type = grads[i].type;
    char* data =
        static_cast<char*>(grads[i].data) + begin * size_in_bytes(type);
    const bool here =
        only_check
            ? loops.has_non_finite(data, type, end - begin)
            : loops.unscale_and_check(data, type, end - begin, *inv_scale);
    if (here) {
      found.store(true, std::memory_order_relaxed);
    }
  });
  if (found) {
    *found_inf = 1;
  }
}

void check_grad(
    const char* where,
    size_t i,
    const at::Tensor& grad,
    torch::Device device,
    bool is_written) {
  TORCH_CHECK_VALUE(
      grad.defined() && element_type(grad.scalar_type()) &&
          grad.device() == device && grad.layout() == at::kStrided,
      fmt::format(
          "[{}] grads[{}] is {}; expected kFloat, kDouble, kHalf or kBFloat16 "
          "on {}, not sparse. Leave undefined ones out, and pass the _values() "
          "of a sparse one.",
          where,
          i,
          describe(grad),
          device.str()));
  TORCH_CHECK_VALUE(
      !is_written || grad.is_non_overlapping_and_dense() ||
          at::has_internal_overlap(grad) != at::MemOverlap::Yes,
      fmt::format(
          "[{}] grads[{}] is {}, expanded; expected memory of its own for "
          "every "
          "element. Clone it first.",
          where,
          i,
          describe(grad)));
}

/// `inv_scale` nullptr: only checks.
void run(
    const char* where,
    at::TensorList grads,
    const at::Tensor* inv_scale,
    const at::Tensor& found_inf) {
  TORCH_CHECK_VALUE(
      found_inf.defined(),
      fmt::format(
          "[{}] found_inf is undefined; expected one kFloat. Make it with "
          "torch::zeros({{}}, device).",
          where));
  const torch::Device device = found_inf.device();
  check_device(where, device);
  check_device_scalar(where, "found_inf", found_inf, device);
  if (inv_scale) {
    check_device_scalar(where, "inv_scale", *inv_scale, device);
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    check_grad(where, i, grads[i], device, inv_scale != nullptr);
  }

  RECORD_FUNCTION(
      inv_scale ? "tern::unscale_and_check_" : "tern::check_finite",
      std::vector<c10::IValue>(
          {grads, found_inf, inv_scale ? *inv_scale : at::Tensor()}));
  // Transposed gradients are dense, so the order of their elements does not
  // matter here. Slices go through a copy.
  const at::NoGradGuard no_grad;
  std::vector<GradTensor> list(grads.size());
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // grad, dense copy
  for (size_t i = 0; i < grads.size(); ++i) {
    const bool is_dense = grads[i].is_non_overlapping_and_dense();
    if (!is_dense) {
      copies.emplace_back(grads[i], grads[i].contiguous());
    }
    const at::Tensor& grad = is_dense ? grads[i] : copies.back().second;
    list[i].data = inv_scale ? grad.mutable_data_ptr()
                             : const_cast<void*>(grad.const_data_ptr());
    list[i].size = grad.numel();
    list[i].type = *element_type(grad.scalar_type());
  }
  const auto count = static_cast<int64_t>(list.size());
  const float* factor =
      inv_scale ? inv_scale->const_data_ptr<float>() : nullptr;
  float* found = found_inf.mutable_data_ptr<float>();
  dispatch_device(
      device,
      [&] { unscale_and_check_cpu(list.data(), count, factor, found); },
      [&](auto stream) {
        return unscale_and_check_cuda(
            list.data(),
            count,
            factor,
            found,
            stream);
      });
  found_inf.unsafeGetTensorImpl()->bump_version();
  if (!inv_scale) {
    return;
  }
  for (const auto& [grad, copy] : copies) {
    grad.copy_(copy);
  }
  for (const at::Tensor& grad : grads) {
    grad.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf) {
  run("unscale_and_check_", grads, &inv_scale, found_inf);
}

void check_finite(at::TensorList grads, torch::Tensor found_inf) {
  run("check_finite", grads, nullptr, found_inf);
}

}  // namespace tern
