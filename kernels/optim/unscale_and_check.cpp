#include "tern/kernels/optim/unscale_and_check.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

/// Elements checked together. They stay in L1, a check can end early, and the
/// cost of starting one is negligible.
constexpr int64_t kBlock = 4096;

/// The bits of a dtype, and the bits of its infinity: an element is not finite
/// if its bits without the sign are at least these. With a `factor`, the
/// elements, which must then have an arithmetic C++ type, are also multiplied.
template <class Bits, Bits kInfinity, class T = Bits, bool kScales = false>
TERN_CPU_LOOP bool
has_non_finite(void* data, int64_t size, [[maybe_unused]] float factor) {
  auto* __restrict elements = static_cast<T*>(data);
  Bits largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Bits bits = static_cast<Bits>(
        std::bit_cast<Bits>(elements[i]) & std::numeric_limits<Bits>::max());
    largest = bits > largest ? bits : largest;
    if constexpr (kScales) elements[i] *= static_cast<T>(factor);
  }
  return largest >= kInfinity;
}

TERN_CPU_LOOP void multiply(float* __restrict data, int64_t size, float by) {
  for (int64_t i = 0; i < size; ++i) data[i] *= by;
}

template <bool kScales>
bool visit(void* data, ElementType type, int64_t size, float factor) {
  switch (type) {
    case ElementType::float32:
      return on_cpu_isa<has_non_finite<int32_t, 0x7F800000, float, kScales>>(
          data,
          size,
          factor);
    case ElementType::float64:
      return on_cpu_isa<
          has_non_finite<int64_t, 0x7FF0000000000000, double, kScales>>(
          data,
          size,
          factor);
    case ElementType::float16:
      return on_cpu_isa<has_non_finite<int16_t, 0x7C00>>(data, size, factor);
    case ElementType::bfloat16:
      return on_cpu_isa<has_non_finite<int16_t, 0x7F80>>(data, size, factor);
  }
  __builtin_unreachable();
}

bool unscale_and_check(
    void* data,
    ElementType type,
    int64_t size,
    float factor) {
  const bool found = visit<true>(data, type, size, factor);
  if (size_in_bytes(type) > 2) return found;  // scaled already
  alignas(64) float buffer[kBlock];
  to_floats(data, type, buffer, size);
  on_cpu_isa<multiply>(buffer, size, factor);
  from_floats(buffer, data, type, size);
  return found;
}

void unscale_and_check_cpu(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf) {
  const bool only_check = !inv_scale || *inv_scale == 1;
  std::vector<int64_t> sizes(count);
  for (int64_t i = 0; i < count; ++i) sizes[i] = grads[i].size;
  std::atomic<bool> found{false};
  parallel_elements(sizes, [&](size_t i, int64_t begin, int64_t end) {
    const ElementType type = grads[i].type;
    bool here = false;
    for (int64_t at = begin; at < end && !(here && only_check); at += kBlock) {
      const int64_t size = std::min(kBlock, end - at);
      void* const data =
          static_cast<char*>(grads[i].data) + at * size_in_bytes(type);
      here |= only_check ? visit<false>(data, type, size, 1)
                         : unscale_and_check(data, type, size, *inv_scale);
    }
    if (here) found.store(true, std::memory_order_relaxed);
  });
  if (found) *found_inf = 1;
}

void check_grad(
    const char* where,
    size_t i,
    const at::Tensor& grad,
    torch::Device device,
    bool is_written) {
  TERN_CHECK_VALUE(
      grad.defined() && element_type(grad.scalar_type()) &&
          grad.device() == device && grad.layout() == at::kStrided,
      "[{}] grads[{}] is {}; expected kFloat, kDouble, kHalf or kBFloat16 on "
      "{}, not sparse. Omit undefined gradients, and pass the _values() of a "
      "sparse one.",
      where,
      i,
      describe(grad),
      device.str());
  TERN_CHECK_VALUE(
      !is_written || grad.is_non_overlapping_and_dense() ||
          at::has_internal_overlap(grad) != at::MemOverlap::Yes,
      "[{}] grads[{}] is {}, an expanded tensor; expected separate memory for "
      "every element. Clone it first.",
      where,
      i,
      describe(grad));
}

/// If `inv_scale` is nullptr, only checks.
void run(
    const char* where,
    at::TensorList grads,
    const at::Tensor* inv_scale,
    const at::Tensor& found_inf) {
  TERN_CHECK_VALUE(
      found_inf.defined(),
      "[{}] found_inf is undefined; expected one kFloat. Create it with "
      "torch::zeros({{}}, device).",
      where);
  const torch::Device device = found_inf.device();
  check_device(where, device);
  check_device_scalar(where, "found_inf", found_inf, device);
  if (inv_scale) check_device_scalar(where, "inv_scale", *inv_scale, device);
  for (size_t i = 0; i < grads.size(); ++i) {
    check_grad(where, i, grads[i], device, inv_scale != nullptr);
  }

  RECORD_FUNCTION(
      inv_scale ? "tern::unscale_and_check_" : "tern::check_finite",
      std::vector<c10::IValue>(
          {grads, found_inf, inv_scale ? *inv_scale : at::Tensor()}));
  // Transposed gradients are dense, and the order of their elements does not
  // matter here. Slices are copied.
  const at::NoGradGuard no_grad;
  std::vector<GradTensor> list(grads.size());
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // grad, dense copy
  for (size_t i = 0; i < grads.size(); ++i) {
    const bool is_dense = grads[i].is_non_overlapping_and_dense();
    if (!is_dense) copies.emplace_back(grads[i], grads[i].contiguous());
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
  if (!inv_scale) return;
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
