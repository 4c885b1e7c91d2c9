#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

struct AdamParamState final : FusedParamState {
  torch::Tensor exp_avg, exp_avg_sq;
  torch::Tensor max_exp_avg_sq;  // with amsgrad

  std::vector<std::pair<std::string, torch::Tensor*>> tensors() override;
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override;
};

/// Adam and AdamW but for the options type and how weight decay acts.
/// \tparam AdamOptions  torch::optim::AdamOptions or AdamWOptions.
template <class AdamOptions>
class AdamBase : public FusedOptimizer {
 public:
  using Options = AdamOptions;

 protected:
  AdamBase(
      const char* name,
      const Groups& groups,
      const Options& defaults,
      bool decoupled_weight_decay);

 private:
  std::unique_ptr<FusedParamState> new_state() const final;
  Buffers prepare_buffers(
      FusedParamState& state,
      const torch::Tensor& param,
      const torch::optim::OptimizerOptions& options) const final;
  torch::Tensor rates_of(
      const torch::optim::OptimizerOptions& options,
      torch::Device device) const final;
  size_t moments_of(const torch::optim::OptimizerOptions& options) const final;
  FusedAdamArgs args_of(const torch::optim::OptimizerOptions& options) const;
  void run_kernel(
      const TensorLists& lists,
      const torch::optim::OptimizerOptions& options,
      const GradState& grad_state) const final;
  void write(torch::serialize::OutputArchive& archive) const final;
  void read(torch::serialize::InputArchive& archive) final;
};

extern template class AdamBase<torch::optim::AdamOptions>;
extern template class AdamBase<torch::optim::AdamWOptions>;

}  // namespace tern::optim
