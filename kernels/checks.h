#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include "tern/kernels/element_type.h"

// What the public entries of kernels/ share: checks, and words for them.
namespace tern {

/// "[2, 3] kLong on cuda:0", or "undefined".
std::string describe(const at::Tensor& tensor);

/// Whether one walk over memory visits the same elements of both: equal sizes,
/// no gaps or overlaps, and the same order of dimensions.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

inline bool is_device_scalar(const at::Tensor& tensor, torch::Device device) {
  return tensor.defined() && tensor.numel() == 1 &&
         tensor.scalar_type() == at::kFloat && tensor.device() == device;
}

/// \throws c10::ValueError unless `tensor` is one kFloat on `device`.
void check_device_scalar(
    const char* where,
    const char* name,
    const at::Tensor& tensor,
    torch::Device device);

/// \throws c10::NotImplementedError unless `device` is a CPU or a CUDA device
/// that this build has kernels for.
void check_device(const char* where, torch::Device device);

/// kFloat, kDouble, kHalf or kBFloat16; other types have no element type.
inline std::optional<ElementType> element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ElementType::float32;
    case at::kDouble:
      return ElementType::float64;
    case at::kHalf:
      return ElementType::float16;
    case at::kBFloat16:
      return ElementType::bfloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace tern
