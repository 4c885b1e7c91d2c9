#include "tern/learner/report/forward_hooks.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

namespace tern {

namespace {

// Replaces a child of a Sequential and calls the function after it.
class Tap final : public torch::nn::Module {
 public:
  Tap(torch::nn::AnyModule original,
      size_t layer,
      ForwardHooks::Function function)
      : original_(std::move(original)),
        layer_(layer),
        function_(std::move(function)) {}

  torch::Tensor forward(torch::Tensor x) {
    torch::Tensor y = original_.forward<torch::Tensor>(std::move(x));
    function_(layer_, y);
    return y;
  }

 private:
  torch::nn::AnyModule original_;
  size_t layer_;
  ForwardHooks::Function function_;
};

}  // namespace

ForwardHooks::ForwardHooks(const Model& model, const Function& function) {
  const std::shared_ptr<torch::nn::Module> root = model.module();
  if (!root) return;
  for (const auto& item : root->named_modules()) {
    const auto sequential =
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(item.value());
    if (!sequential) continue;
    const auto children = sequential->named_children();
    for (size_t i = 0; i < sequential->size(); ++i) {
      torch::nn::AnyModule& child = *(sequential->begin() + i);
      const std::string& key = children[i].key();
      names_.push_back(item.key().empty() ? key : item.key() + "." + key);
      places_.push_back({sequential, &child, child});
      child = torch::nn::AnyModule(
          std::make_shared<Tap>(child, places_.size() - 1, function));
    }
  }
}

ForwardHooks::~ForwardHooks() {
  for (Place& place : places_) *place.child = std::move(place.original);
}

}  // namespace tern
