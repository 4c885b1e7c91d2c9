#pragma once

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

/// Base of the optimizers that keep Adam's moments.
/// \tparam AdamOptions  torch::optim::AdamOptions or AdamWOptions; also sets
///                      the archive format.
template <class AdamOptions>
class AdamBase : public FusedOptimizerOf<AdamParamState, AdamOptions> {
 protected:
  /// \param kind  The properties in which these optimizers differ:
  ///              decoupled_weight_decay, rectified and trust_ratio.
  AdamBase(
      const char* name,
      const FusedAdamArgs& kind,
      const FusedOptimizer::Groups& groups,
      const AdamOptions& defaults,
      const FusedOptions& fused);

 private:
  FusedOptimizer::Args args_of(
      const torch::optim::OptimizerOptions& options) const final;

  FusedAdamArgs kind_;
};

extern template class AdamBase<torch::optim::AdamOptions>;
extern template class AdamBase<torch::optim::AdamWOptions>;

/// Adam in one fused kernel. Computes what `torch.optim.Adam` does, including
/// weight decay through the gradient (L2). See `FusedOptimizer` for what all
/// fused optimizers share.
///
///   tern::optim::Adam optimizer(
///       net->parameters(), torch::optim::AdamOptions(1e-3).weight_decay(0.1));
class Adam final : public AdamBase<torch::optim::AdamOptions> {
 public:
  explicit Adam(
      const Groups& groups,
      const Options& defaults = {},
      const FusedOptions& fused = {})
      : AdamBase("tern::optim::Adam", {}, groups, defaults, fused) {}
  explicit Adam(
      Tensors params,
      const Options& defaults = {},
      const FusedOptions& fused = {})
      : Adam(one_group(std::move(params)), defaults, fused) {}
};

/// AdamW in one fused kernel. Computes what `torch.optim.AdamW` does; weight
/// decay is always decoupled.
///
///   tern::optim::AdamW optimizer(
///       net->parameters(),
///       torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
class AdamW final : public AdamBase<torch::optim::AdamWOptions> {
 public:
  explicit AdamW(
      const Groups& groups,
      const Options& defaults = {},
      const FusedOptions& fused = {})
      : AdamBase(
            "tern::optim::AdamW",
            {.decoupled_weight_decay = true},
            groups,
            defaults,
            fused) {
    always_decouple_weight_decay();
  }
  explicit AdamW(
      Tensors params,
      const Options& defaults = {},
      const FusedOptions& fused = {})
      : AdamW(one_group(std::move(params)), defaults, fused) {}
};

/// fastai's defaults for RAdam and Lamb: betas (0.9, 0.99), eps 1e-5, no weight
/// decay.
struct RAdamOptions : torch::optim::AdamWOptions {
  RAdamOptions(double lr = 1e-3)  // NOLINT: implicit as LibTorch's
      : AdamWOptions(lr) {
    betas({0.9, 0.99}).eps(1e-5).weight_decay(0);
  }
};
using LambOptions = RAdamOptions;

/// Rectified Adam (Liu et al. 2019) in one fused kernel, like fastai's `RAdam`.
/// Takes plain momentum steps until the variance of the adaptive learning rate
/// can be estimated. Weight decay is decoupled unless
/// `decoupled_weight_decay(false)`.
///
///   .optimizer = tern::optimizer<tern::optim::RAdam>()
///   .optimizer = tern::ranger()  // with Lookahead
class RAdam final : public AdamBase<torch::optim::AdamWOptions> {
 public:
  explicit RAdam(
      const Groups& groups,
      const Options& defaults = RAdamOptions(),
      const FusedOptions& fused = {})
      : AdamBase(
            "tern::optim::RAdam",
            {.decoupled_weight_decay = true, .rectified = true},
            groups,
            defaults,
            fused) {}
  explicit RAdam(
      Tensors params,
      const Options& defaults = RAdamOptions(),
      const FusedOptions& fused = {})
      : RAdam(one_group(std::move(params)), defaults, fused) {}
};

/// LAMB (You et al. 2019), for large batches, like fastai's `Lamb`. Multiplies
/// each tensor's Adam step by the ratio of the parameter's norm to the step's
/// norm, at most 10. Weight decay is decoupled and not part of that step.
class Lamb final : public AdamBase<torch::optim::AdamWOptions> {
 public:
  explicit Lamb(
      const Groups& groups,
      const Options& defaults = LambOptions(),
      const FusedOptions& fused = {})
      : AdamBase(
            "tern::optim::Lamb",
            {.decoupled_weight_decay = true, .trust_ratio = true},
            groups,
            defaults,
            fused) {}
  explicit Lamb(
      Tensors params,
      const Options& defaults = LambOptions(),
      const FusedOptions& fused = {})
      : Lamb(one_group(std::move(params)), defaults, fused) {}
};

}  // namespace tern::optim
