#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "tern/learner/learner_options.h"
#include "tern/learner/optim/decoupled_weight_decay.h"

namespace tern {

/// The factory of `Optimizer(groups, options)`, for any optimizer made so.
///
///   .optimizer = tern::optimizer<tern::optim::SGD>(
///       torch::optim::SGDOptions(0.1).momentum(0.9))
///   .optimizer = tern::optimizer<torch::optim::RMSprop>()
///
/// Learning rate and weight decay are the Learner's, as in fastai: those given
/// to `fit`, LearnerOptions::lr and weight_decay take the place of the
/// options'. Momentum, betas and all else stay as they are here.
/// \param options  Left out: the optimizer's own defaults.
template <class Optimizer, class... Options>
OptimizerFactory optimizer(Options... options) {
  static_assert(sizeof...(Options) <= 1, "an optimizer has one options struct");
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  // Ours know decoupled weight decay, LibTorch's learn it here.
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

}  // namespace tern
