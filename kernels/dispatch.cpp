#include "tern/kernels/dispatch.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {
std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format(
      "[{}] k{} on {}",
      fmt::join(tensor.sizes(), ", "),
      c10::toString(tensor.scalar_type()),
      tensor.device().str());
}

void check_device_scalar(
    const char* where,
    const char* name,
    const at::Tensor& tensor,
    torch::Device device,
    std::optional<size_t> index) {
  TERN_CHECK_VALUE(
      tensor.defined() && tensor.numel() == 1 &&
          tensor.scalar_type() == at::kFloat && tensor.device() == device,
      "[{0}] {1} is {2}; expected one kFloat on {3}. Create it with "
      "torch::full({{}}, value, torch::Device(\"{3}\")).",
      where,
      index ? fmt::format("{}[{}]", name, *index) : name,
      describe(tensor),
      device.str());
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
