#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/csrc/jit/api/module.h>

#include "tern/learner/model.h"

namespace tern {

/// What a C++ model computes for these inputs, as TorchScript: a module of the
/// same tensors under the same names, with one graph. The caller has put the
/// model in eval mode and turned gradients off. Private to Tern, for exports.
/// \param forward  What is traced, if not the model's forward alone.
torch::jit::Module trace(
    Model& model,
    const Tensors& inputs,
    const std::function<Tensors(const Tensors&)>& forward = nullptr);

/// Whether outputs of a graph are those of its model: the same shapes, and
/// numbers within 1e-4 of the largest one, for in a deep network rounding is
/// large beside a number near 0.
bool outputs_alike(const Tensors& expected, const Tensors& traced);

/// While it lives, random numbers that operators of this thread draw do not
/// count: then the generators of the CPU and of `device` are as they were. If it
/// drew none they are left alone, for other threads may have drawn.
class KeptRandomState {
 public:
  explicit KeptRandomState(torch::Device device);
  ~KeptRandomState();
  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;

 private:
  std::vector<std::pair<at::Generator, torch::Tensor>> kept_;
  bool had_drawn_ = false;  // of one around it
  at::CallbackHandle handle_;
};

Tensors to_device(const Tensors& tensors, torch::Device device);

}  // namespace tern
