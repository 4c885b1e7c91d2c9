#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

/// Sees what the layers of a model answer: forward hooks, which LibTorch's C++
/// modules lack.
///
///   ForwardHooks hooks(model, [](size_t layer, const torch::Tensor& output) {
///     ...
///   });
///
/// Taps sit behind the children of every `torch::nn::Sequential` in the model,
/// at any depth; a ResNet has them behind its blocks. Such a child must take
/// and give one tensor. Names, parameters and the state dict stay as they are.
/// The model may not be cloned while hooks are in it.
class ForwardHooks {
 public:
  using Function = std::function<void(size_t layer, const torch::Tensor&)>;

  /// A TorchScript model, or one without a Sequential, has no layers to tap.
  ForwardHooks(const Model& model, const Function& function);
  /// Removes the hooks.
  ~ForwardHooks();
  ForwardHooks(const ForwardHooks&) = delete;
  ForwardHooks& operator=(const ForwardHooks&) = delete;

  /// Names of the layers, as "layer1.0".
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
