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

/// SGD with momentum in one fused kernel; computes what `torch.optim.SGD` does.
/// See `FusedOptimizer` for what all three fused optimizers share.
///
///   tern::optim::SGD optimizer(
///       net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
class SGD final
    : public FusedOptimizerOf<SGDParamState, torch::optim::SGDOptions> {
 public:
  explicit SGD(const Groups& groups, const Options& defaults = {1e-3});
  explicit SGD(Tensors params, const Options& defaults = {1e-3})
      : SGD({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

 private:
  Args args_of(const torch::optim::OptimizerOptions& options) const override;
};

}  // namespace tern::optim
