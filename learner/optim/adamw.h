#pragma once

#include "tern/learner/optim/adam_base.h"

namespace tern::optim {

/// AdamW in one fused kernel; computes what `torch.optim.AdamW` does. See
/// `FusedOptimizer` for what all three share.
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
  explicit AdamW(
      std::vector<torch::Tensor> params,
      const Options& defaults = {})
      : AdamW(
            {torch::optim::OptimizerParamGroup(std::move(params))},
            defaults) {}
};

}  // namespace tern::optim
