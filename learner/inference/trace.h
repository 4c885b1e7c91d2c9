#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/csrc/jit/api/module.h>

#include "tern/learner/model.h"

namespace tern {

/// Traces a C++ model with these inputs. The resulting TorchScript module has
/// the same tensors under the same names, and one graph. The caller must set
/// the model to eval mode and disable gradients. Private to Tern, for exports.
/// \param forward  The function to trace; by default the model's forward.
torch::jit::Module trace(
    Model& model,
    const Tensors& inputs,
    const std::function<Tensors(const Tensors&)>& forward = nullptr);

/// True if the outputs of a graph match its model's outputs: the same shapes,
/// and numbers within a tolerance of 1e-4 times the largest number. The
/// tolerance is not relative to each number, because in a deep network rounding
/// errors are large compared with numbers near 0.
bool outputs_alike(const Tensors& expected, const Tensors& traced);

/// Restores the random number generators of the CPU and of `device` at the end
/// of its lifetime, if operators of this thread drew random numbers. Otherwise
/// leaves them unchanged, since other threads may have drawn from them.
class KeptRandomState {
 public:
  explicit KeptRandomState(torch::Device device);
  ~KeptRandomState();
  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;

 private:
  std::vector<std::pair<at::Generator, torch::Tensor>> kept_;
  bool had_drawn_ = false;  // of the enclosing object
  at::CallbackHandle handle_;
};

Tensors to_device(const Tensors& tensors, torch::Device device);

}  // namespace tern
