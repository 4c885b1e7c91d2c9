#pragma once

#include "tern/learner/optim/adam_base.h"

namespace tern::optim {

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
  explicit Adam(std::vector<torch::Tensor> params, const Options& defaults = {})
      : Adam({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {
  }
};

}  // namespace tern::optim
