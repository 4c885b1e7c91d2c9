#include "tern/learner/optim/combined_optimizer.h"

#include <algorithm>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/types.h>

namespace tern::optim {

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

std::vector<OptimizerParamGroup> groups_of(
    const CombinedOptimizer::Optimizers& optimizers) {
  std::vector<OptimizerParamGroup> groups;
  for (const auto& optimizer : optimizers) {
    for (const auto& group : optimizer->param_groups()) groups.push_back(group);
  }
  return groups;
}

// A CombinedOptimizer whose optimizers are all AmpAware.
class AmpAwareOptimizers final : public CombinedOptimizer, public AmpAware {
 public:
  explicit AmpAwareOptimizers(Optimizers optimizers)
      : CombinedOptimizer(std::move(optimizers)) {}

  void step_amp(const torch::Tensor& grad_scale, const torch::Tensor& found_inf)
      override {
    with_active([&](Optimizer& optimizer) {
      amp_aware(optimizer).step_amp(grad_scale, found_inf);
    });
  }

  Tensors gradients() const override {
    Tensors result;
    // Moves the groups and the state back before this function returns.
    const_cast<AmpAwareOptimizers*>(this)->with_active(
        [&](Optimizer& optimizer) {
          result = amp_aware(optimizer).gradients();
        });
    return result;
  }

  void set_weights(const Tensors& masters, const Tensors& weights) override {
    with_each([&](Optimizer& optimizer) {
      amp_aware(optimizer).set_weights(masters, weights);
    });
  }

  void move_gradients_to_masters() override {
    with_active([](Optimizer& optimizer) {
      amp_aware(optimizer).move_gradients_to_masters();
    });
  }

 private:
  static AmpAware& amp_aware(Optimizer& optimizer) {
    return dynamic_cast<AmpAware&>(optimizer);
  }
};

}  // namespace

std::unique_ptr<CombinedOptimizer> CombinedOptimizer::combine(
    Optimizers optimizers) {
  const bool are_amp_aware =
      std::ranges::all_of(optimizers, [](const auto& optimizer) {
        return dynamic_cast<AmpAware*>(optimizer.get()) != nullptr;
      });
  if (are_amp_aware) {
    return std::make_unique<AmpAwareOptimizers>(std::move(optimizers));
  }
  return std::unique_ptr<CombinedOptimizer>(
      new CombinedOptimizer(std::move(optimizers)));
}

CombinedOptimizer::CombinedOptimizer(Optimizers optimizers)
    : Optimizer(groups_of(optimizers), optimizers.at(0)->defaults().clone()),
      parts_(std::move(optimizers)) {
  size_t begin = 0;
  for (const auto& optimizer : parts_) {
    begins_.push_back(begin);
    begin += optimizer->param_groups().size();
    for (OptimizerParamGroup& group : optimizer->param_groups()) {
      group = OptimizerParamGroup(Tensors());
    }
    // State that the constructor creates, as Adagrad's does.
    for (auto& [param, made] : optimizer->state()) {
      state_[param] = std::move(made);
    }
    optimizer->state().clear();
  }
}

const Optimizer& CombinedOptimizer::of_group(size_t group) const {
  const auto after = std::ranges::upper_bound(begins_, group);
  return *parts_[after - begins_.begin() - 1];
}

void CombinedOptimizer::with(size_t index, Work work) {
  Optimizer& optimizer = *parts_[index];
  const auto exchange = [&] {
    auto& groups = optimizer.param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      std::swap(groups[i], param_groups_[begins_[index] + i]);
    }
    std::swap(optimizer.state(), state_);
  };
  exchange();
  const auto put_back = c10::make_scope_exit(exchange);
  work(optimizer);
}

void CombinedOptimizer::with_each(Work work) {
  for (size_t i = 0; i < parts_.size(); ++i) with(i, work);
}

torch::Tensor CombinedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  with_active(
      [&](Optimizer& optimizer) { loss = optimizer.step(std::move(closure)); });
  return loss;
}

void CombinedOptimizer::decoupled_weight_decay(bool on) {
  for (const auto& optimizer : parts_) {
    auto* const has_choice =
        dynamic_cast<DecoupledWeightDecay*>(optimizer.get());
    if (has_choice) has_choice->decoupled_weight_decay(on);
  }
}

Tensors CombinedOptimizer::weight_copies() {
  Tensors all;
  with_each([&](Optimizer& optimizer) {
    if (auto* const copies = dynamic_cast<CopiesWeights*>(&optimizer)) {
      for (const torch::Tensor& copy : copies->weight_copies()) {
        all.push_back(copy);
      }
    }
  });
  return all;
}

void CombinedOptimizer::weights_replaced() {
  with_each([](Optimizer& optimizer) {
    if (auto* const copies = dynamic_cast<CopiesWeights*>(&optimizer)) {
      copies->weights_replaced();
    }
  });
}

// LibTorch's archives hold the state of only one kind of optimizer.
void CombinedOptimizer::save(torch::serialize::OutputArchive&) const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "[MultiOptimizer] torch::save cannot write several optimizers, one of "
      "which Tern does not support; expected fused optimizers, or "
      "torch::optim's SGD, Adam, AdamW, RMSprop or Adagrad, and "
      "Learner::save.");
}

}  // namespace tern::optim
