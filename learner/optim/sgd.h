#pragma once

#include <torch/optim/sgd.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

struct SGDParamState final : FusedParamState {
  SGDParamState() : FusedParamState({"momentum_buffer"}) {}
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<SGDParamState>(*this);
  }
};

/// SGD with momentum in one fused kernel. Computes what `torch.optim.SGD` does.
/// See `FusedOptimizer` for what all fused optimizers share.
///
///   tern::optim::SGD optimizer(
///       net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
class SGD final
    : public FusedOptimizerOf<SGDParamState, torch::optim::SGDOptions> {
 public:
  explicit SGD(
      const Groups& groups,
      const Options& defaults = {1e-3},
      const FusedOptions& fused = {});
  explicit SGD(
      Tensors params,
      const Options& defaults = {1e-3},
      const FusedOptions& fused = {})
      : SGD(one_group(std::move(params)), defaults, fused) {}

 private:
  Args args_of(const torch::optim::OptimizerOptions& options) const override;
};

struct LarcOptions : torch::optim::OptimizerCloneableOptions<LarcOptions> {
  LarcOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as LibTorch's
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  /// A tensor's learning rate is `lr * trust_coeff * |param| / (|grad| +
  /// weight_decay * |param| + eps)`; with `clip` at most `lr`.
  TORCH_ARG(double, trust_coeff) = 0.02;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, clip) = true;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// LARC in one fused kernel, like fastai's `Larc`; LARS (You et al. 2017) with
/// `.clip(false)`. SGD with momentum and a learning rate per tensor, computed
/// from the norms of parameter and gradient. As in fastai, a tensor of zeros
/// stays zero. Weight decay is decoupled unless
/// `decoupled_weight_decay(false)`.
class Larc final : public FusedOptimizerOf<SGDParamState, LarcOptions> {
 public:
  explicit Larc(
      const Groups& groups,
      const Options& defaults = {},
      const FusedOptions& fused = {});
  explicit Larc(
      Tensors params,
      const Options& defaults = {},
      const FusedOptions& fused = {})
      : Larc(one_group(std::move(params)), defaults, fused) {}

 private:
  Args args_of(const torch::optim::OptimizerOptions& options) const override;
};

}  // namespace tern::optim
