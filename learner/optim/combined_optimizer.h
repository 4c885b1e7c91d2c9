#pragma once

#include <memory>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

/// Several optimizers behind one interface; only the active one steps. Holds
/// the parameter groups and the state of all optimizers, starting with the
/// first. Each optimizer receives its groups and state only for the duration of
/// its own calls. Private to Tern.
class CombinedOptimizer : public torch::optim::Optimizer,
                          public DecoupledWeightDecay,
                          public CopiesWeights {
 public:
  using Optimizers = std::vector<std::unique_ptr<torch::optim::Optimizer>>;

  /// The result is `AmpAware` if all of them are.
  static std::unique_ptr<CombinedOptimizer> combine(Optimizers optimizers);

  void activate(size_t index) { active_ = index; }
  /// Only its type and address are meaningful.
  const torch::optim::Optimizer& active() const { return *parts_[active_]; }
  /// The optimizer of a parameter group.
  const torch::optim::Optimizer& of_group(size_t group) const;
  const Optimizers& all() const { return parts_; }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void decoupled_weight_decay(bool on) override;
  Tensors weight_copies() override;
  void weights_replaced() override;
  /// \throws c10::NotImplementedError always; use `optim::named_state`.
  void save(torch::serialize::OutputArchive& archive) const override;

 protected:
  explicit CombinedOptimizer(Optimizers optimizers);
  using Work = c10::function_ref<void(torch::optim::Optimizer&)>;
  void with_active(Work work) { with(active_, work); }
  void with_each(Work work);

 private:
  void with(size_t index, Work work);

  Optimizers parts_;
  std::vector<size_t> begins_;  // first group of each optimizer
  size_t active_ = 0;
};

}  // namespace tern::optim
