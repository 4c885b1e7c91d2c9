#pragma once

#include <type_traits>
#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

struct AdamParamState final : FusedParamState {
  AdamParamState()
      : FusedParamState({"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}) {}
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<AdamParamState>(*this);
  }
};

/// Adam and AdamW, which differ in the options type and how weight decay acts.
/// \tparam AdamOptions  torch::optim::AdamOptions or AdamWOptions.
template <class AdamOptions>
class AdamBase : public FusedOptimizerOf<AdamParamState, AdamOptions> {
 public:
  explicit AdamBase(
      const FusedOptimizer::Groups& groups,
      const AdamOptions& defaults = {});
  explicit AdamBase(Tensors params, const AdamOptions& defaults = {})
      : AdamBase(
            {torch::optim::OptimizerParamGroup(std::move(params))},
            defaults) {}

 private:
  static constexpr bool kIsAdamW =
      std::is_same_v<AdamOptions, torch::optim::AdamWOptions>;

  FusedOptimizer::Args args_of(
      const torch::optim::OptimizerOptions& options) const final;
};

extern template class AdamBase<torch::optim::AdamOptions>;
extern template class AdamBase<torch::optim::AdamWOptions>;

/// Adam in one fused kernel; computes what `torch.optim.Adam` does, weight
/// decay by the gradient included. See `FusedOptimizer` for what all three
/// share.
///
///   tern::optim::Adam optimizer(
///       net->parameters(), torch::optim::AdamOptions(1e-3).weight_decay(0.1));
class Adam final : public AdamBase<torch::optim::AdamOptions> {
 public:
  using AdamBase::AdamBase;
};

/// AdamW in one fused kernel; computes what `torch.optim.AdamW` does.
///
///   tern::optim::AdamW optimizer(
///       net->parameters(),
///       torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
class AdamW final : public AdamBase<torch::optim::AdamWOptions> {
 public:
  using AdamBase::AdamBase;
};

}  // namespace tern::optim
