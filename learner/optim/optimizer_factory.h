#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_options.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace optim {

/// Adds decoupled weight decay to a LibTorch optimizer. `tern::optimizer` wraps
/// LibTorch's optimizers in this class.
template <class Base>
class WithDecoupledWeightDecay final : public Base,
                                       public DecoupledWeightDecay {
 public:
  using Base::Base;

  void decoupled_weight_decay(bool on) override { is_decoupled_ = on; }

  torch::Tensor step(
      torch::optim::Optimizer::LossClosure closure = nullptr) override {
    if (!is_decoupled_) return Base::step(std::move(closure));
    // The optimizer's own step must not apply weight decay again. The values
    // are restored even if it throws.
    std::vector<std::pair<torch::optim::OptimizerOptions*, double>> decays;
    const auto restore = c10::make_scope_exit([&] {
      for (auto& [options, decay] : decays) set_weight_decay(*options, decay);
    });
    const torch::NoGradGuard no_grad;
    for (auto& group : this->param_groups()) {
      const double decay = weight_decay(group.options());
      if (decay == 0) continue;
      const double factor = 1 - group.options().get_lr() * decay;
      for (torch::Tensor& param : group.params()) {
        if (param.grad().defined()) param.mul_(factor);
      }
      decays.emplace_back(&group.options(), decay);
      set_weight_decay(group.options(), 0);
    }
    return Base::step(std::move(closure));
  }

 private:
  bool is_decoupled_ = false;
};

}  // namespace optim

/// Returns a factory for any optimizer that can be constructed as
/// `Optimizer(groups, options...)`.
///
///   .optimizer = tern::optimizer<tern::optim::SGD>(
///       torch::optim::SGDOptions(0.1).momentum(0.9))
///   .optimizer = tern::optimizer<torch::optim::RMSprop>()
///   .optimizer = tern::optimizer<tern::optim::Lamb>()
///
/// As in fastai, the Learner sets learning rate and weight decay: the values
/// given to `fit`, LearnerOptions::lr and weight_decay replace the values in
/// the options. Momentum, betas and all other options stay as given here.
/// \param options  If omitted, the optimizer's own defaults. Optimizers in
///                 tern::optim take `optim::FusedOptions` as a second argument.
template <class Optimizer, class... Options>
OptimizerFactory optimizer(Options... options) {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  // Tern's optimizers support decoupled weight decay; for LibTorch's optimizers
  // it is added here.
  using Made = std::conditional_t<
      std::is_base_of_v<optim::DecoupledWeightDecay, Optimizer>,
      Optimizer,
      optim::WithDecoupledWeightDecay<Optimizer>>;
  return
      [options...](Groups groups) -> std::unique_ptr<torch::optim::Optimizer> {
        if constexpr (std::is_constructible_v<Optimizer, Groups, Options...>) {
          return std::make_unique<Made>(std::move(groups), options...);
        } else {
          return std::make_unique<Made>(std::move(groups), 1e-3);
        }
      };
}

/// Returns a factory for the fused `optim::AdamW` with fastai's betas (0.9,
/// 0.99). If `true_weight_decay` is false, the factory is for `optim::Adam`
/// with these betas, whose weight decay acts through the gradient.
OptimizerFactory default_optimizer(bool true_weight_decay = true);

/// Returns a factory for fastai's `ranger`: `optim::RAdam` with betas (0.95,
/// 0.99) and eps 1e-6 in Lookahead with k 6 and alpha 0.5.
OptimizerFactory ranger();

}  // namespace tern
