#pragma once

#include <deque>
#include <optional>

#include "tern/kernels/fused_optimizer.h"
#include "tern/kernels/fused_optimizer_launch.h"

namespace tern {

/// Checks the lists of one fused optimizer step and turns them into pointers.
/// Keep it alive until the kernels have been launched.
class StepUnpacker {
 public:
  /// `where` names the public function in messages; `tensors` is not empty.
  StepUnpacker(
      const char* where,
      const OptimizerTensors& tensors,
      const GradState& grad_state);

  torch::Device device() const { return device_; }
  const GradStatePointers& grad_state() const { return grad_state_; }

  /// \throws c10::ValueError unless `list` has one entry per parameter.
  void check_count(const char* name, at::TensorList list) const;
  /// \throws c10::ValueError unless `list` is empty; `why` it has to be.
  void check_empty(const char* name, at::TensorList list, const char* why)
      const;

  /// Parameter i with its gradient, weight and step count.
  StepTensor unpack(size_t i);
  /// Entry i of a kFloat list like `params` that the step writes.
  float* unpack_state(const char* name, at::TensorList list, size_t i) const;

 private:
  const float* unpack_scalar(
      const char* name,
      const std::optional<torch::Tensor>& scalar) const;
  void check_param(size_t i) const;
  void check_like_param(
      const char* name,
      size_t i,
      const at::Tensor& tensor,
      bool has_type,
      const char* expected_type) const;
  void unpack_grad(size_t i, StepTensor& out);
  void unpack_weight(size_t i, StepTensor& out) const;

  const char* where_;
  const OptimizerTensors& tensors_;
  torch::Device device_;
  GradStatePointers grad_state_;
  /// Gradients copied into their parameter's layout.
  std::deque<at::Tensor> copies_;
};

}  // namespace tern
