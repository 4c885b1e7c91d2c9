#pragma once

#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/hyper_parameter.h"

namespace tern::optim {

/// An optimizer that can decay weights directly, as AdamW and fastai do.
class DecoupledWeightDecay {
 public:
  virtual ~DecoupledWeightDecay() = default;

  /// How the groups' `weight_decay` acts. true: `param *= 1 - lr *
  /// weight_decay` for every parameter with a gradient, before the step. false:
  /// the optimizer's own way.
  virtual void decoupled_weight_decay(bool on) = 0;
};

/// An optimizer of LibTorch with the choice above; what `tern::optimizer` makes
/// of one.
template <class Base>
class WithDecoupledWeightDecay final : public Base,
                                       public DecoupledWeightDecay {
 public:
  using Base::Base;

  void decoupled_weight_decay(bool on) override { is_decoupled_ = on; }

  torch::Tensor step(
      torch::optim::Optimizer::LossClosure closure = nullptr) override {
    if (!is_decoupled_) return Base::step(std::move(closure));
    // The step must not decay too; the guard puts the values back even when it
    // throws.
    struct Restore {
      ~Restore() {
        for (auto& [options, decay] : decays) {
          set_weight_decay(*options, decay);
        }
      }
      std::vector<std::pair<torch::optim::OptimizerOptions*, double>> decays;
    } restore;
    const torch::NoGradGuard no_grad;
    for (auto& group : this->param_groups()) {
      const double decay = weight_decay(group.options());
      if (decay == 0) continue;
      const double factor = 1 - group.options().get_lr() * decay;
      for (torch::Tensor& param : group.params()) {
        if (param.grad().defined()) param.mul_(factor);
      }
      restore.decays.emplace_back(&group.options(), decay);
      set_weight_decay(group.options(), 0);
    }
    return Base::step(std::move(closure));
  }

 private:
  bool is_decoupled_ = false;
};

}  // namespace tern::optim
