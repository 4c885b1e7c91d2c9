#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

/// Calls a function with the output of each layer of a model. LibTorch's C++
/// modules have no forward hooks; this class provides them.
///
///   ForwardHooks hooks(model, [](size_t layer, const torch::Tensor& output) {
///     ...
///   });
///
/// The hooks run after the children of every `torch::nn::Sequential` in the
/// model, at any depth; in a ResNet these are its blocks. Each such child must
/// take and return one tensor. Names, parameters and the state dict do not
/// change. Do not clone the model while it has hooks.
class ForwardHooks {
 public:
  using Function = std::function<void(size_t layer, const torch::Tensor&)>;

  /// Adds no hooks to a TorchScript model or a model without a Sequential.
  ForwardHooks(const Model& model, const Function& function);
  /// Removes the hooks.
  ~ForwardHooks();
  ForwardHooks(const ForwardHooks&) = delete;
  ForwardHooks& operator=(const ForwardHooks&) = delete;

  /// Names of the layers, for example "layer1.0".
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Place {
    std::shared_ptr<torch::nn::Module> sequential;  // keeps `child` alive
    torch::nn::AnyModule* child;
    torch::nn::AnyModule original;
  };

  std::vector<std::string> names_;
  std::vector<Place> places_;
};

}  // namespace tern
