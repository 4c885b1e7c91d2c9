#include "tern/kernels/checks.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern {
namespace {

bool same_order(const at::Tensor& a, const at::Tensor& b) {
  const auto sizes = a.sizes();
  const auto a_strides = a.strides(), b_strides = b.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    // The stride of a dimension of one element says nothing.
    if (sizes[i] > 1 && a_strides[i] != b_strides[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  return fmt::format(
      "[{}] k{} on {}",
      fmt::join(tensor.sizes(), ", "),
      c10::toString(tensor.scalar_type()),
      tensor.device().str());
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return false;
  }
  if (a.is_contiguous() && b.is_contiguous()) {
    return true;
  }
  return a.is_non_overlapping_and_dense() && same_order(a, b);
}

void check_device_scalar(
    const char* where,
    const char* name,
    const at::Tensor& tensor,
    torch::Device device) {
  TORCH_CHECK_VALUE(
      is_device_scalar(tensor, device),
      fmt::format(
          "[{0}] {1} is {2}; expected one kFloat on {3}. Make it with "
          "torch::full({{}}, value, torch::Device(\"{3}\")).",
          where,
          name,
          describe(tensor),
          device.str()));
}

void check_device(const char* where, torch::Device device) {
#ifdef TERN_WITH_CUDA
  TORCH_CHECK_NOT_IMPLEMENTED(
      device.is_cpu() || device.is_cuda(),
      fmt::format(
          "[{}] the tensors are on {}; expected a CPU or a CUDA device. Move "
          "them first.",
          where,
          device.str()));
#else
  TORCH_CHECK_NOT_IMPLEMENTED(
      device.is_cpu(),
      fmt::format(
          "[{}] the tensors are on {}; this build has CPU kernels only. Build "
          "with TERN_CUDA=ON, or move the tensors.",
          where,
          device.str()));
#endif
}

}  // namespace tern
