#pragma once

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

/// Adam and AdamW but for the options type and how weight decay acts.
/// \tparam AdamOptions  torch::optim::AdamOptions or AdamWOptions.
template <class AdamOptions>
class AdamBase : public FusedOptimizerOf<AdamParamState, AdamOptions> {
 protected:
  AdamBase(
      const char* name,
      const FusedOptimizer::Groups& groups,
      const AdamOptions& defaults,
      bool decoupled_weight_decay);

 private:
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
  explicit Adam(const Groups& groups, const Options& defaults = {})
      : AdamBase(
            "tern::optim::Adam",
            groups,
            defaults,
            /*decoupled_weight_decay=*/false) {}
  explicit Adam(Tensors params, const Options& defaults = {})
      : Adam({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {
  }
};

/// AdamW in one fused kernel; computes what `torch.optim.AdamW` does.
///
///   tern::optim::AdamW optimizer(
///       net->parameters(),
///       torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
class AdamW final : public AdamBase<torch::optim::AdamWOptions> {
 public:
  explicit AdamW(const Groups& groups, const Options& defaults = {})
      : AdamBase(
            "tern::optim::AdamW",
            groups,
            defaults,
            /*decoupled_weight_decay=*/true) {}
  explicit AdamW(Tensors params, const Options& defaults = {})
      : AdamW(
            {torch::optim::OptimizerParamGroup(std::move(params))},
            defaults) {}
};

}  // namespace tern::optim
