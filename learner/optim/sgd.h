#pragma once

#include <torch/optim/sgd.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

struct SGDParamState final : FusedParamState {
  torch::Tensor momentum_buffer;

  std::vector<std::pair<std::string, torch::Tensor*>> tensors() override;
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override;
};

/// SGD with momentum in one fused kernel; computes what `torch.optim.SGD` does.
/// See `FusedOptimizer` for what all three fused optimizers share.
///
///   tern::optim::SGD optimizer(
///       net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
class SGD final : public FusedOptimizer {
 public:
  using Options = torch::optim::SGDOptions;

  explicit SGD(const Groups& groups, Options defaults = {1e-3});
  explicit SGD(std::vector<torch::Tensor> params, Options defaults = {1e-3})
      : SGD({torch::optim::OptimizerParamGroup(std::move(params))},
            std::move(defaults)) {}

 private:
  std::unique_ptr<FusedParamState> new_state() const override;
  Buffers prepare_buffers(
      FusedParamState& state,
      const torch::Tensor& param,
      const torch::optim::OptimizerOptions& options) const override;
  torch::Tensor rates_of(
      const torch::optim::OptimizerOptions& options,
      torch::Device device) const override;
  size_t moments_of(
      const torch::optim::OptimizerOptions& options) const override;
  FusedSgdArgs args_of(const torch::optim::OptimizerOptions& options) const;
  void run_kernel(
      const TensorLists& lists,
      const torch::optim::OptimizerOptions& options,
      const GradState& grad_state) const override;
  void write(torch::serialize::OutputArchive& archive) const override;
  void read(torch::serialize::InputArchive& archive) override;
};

}  // namespace tern::optim
