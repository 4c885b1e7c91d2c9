#pragma once

#include <memory>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>

#include "tern/learner/optim/fused_optimizer.h"

namespace tern::optim {

/// Several optimizers as one, of which the active one steps. Parameter groups
/// and state are here, those of the first optimizer first; an optimizer has its
/// own only while it is at work. Private to Tern.
class CombinedOptimizer : public torch::optim::Optimizer,
                          public DecoupledWeightDecay,
                          public CopiesWeights {
 public:
  using Optimizers = std::vector<std::unique_ptr<torch::optim::Optimizer>>;

  /// It is `AmpAware` if all of them are.
  static std::unique_ptr<CombinedOptimizer> combine(Optimizers optimizers);

  void activate(size_t index) { active_ = index; }
  /// For its type and its address.
  const torch::optim::Optimizer& active() const { return *parts_[active_]; }
  /// The one of a parameter group.
  const torch::optim::Optimizer& of_group(size_t group) const;
  const Optimizers& all() const { return parts_; }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void decoupled_weight_decay(bool on) override;
  Tensors weight_copies() override;
  void weights_replaced() override;
  /// \throws c10::NotImplementedError; `optim::named_state` has everything.
  void save(torch::serialize::OutputArchive& archive) const override;

 protected:
  explicit CombinedOptimizer(Optimizers optimizers);
  using Work = c10::function_ref<void(torch::optim::Optimizer&)>;
  void with_active(Work work) { with(active_, work); }
  void with_each(Work work);

 private:
  void with(size_t index, Work work);

  Optimizers parts_;
  std::vector<size_t> begins_;  // of their parameter groups
  size_t active_ = 0;
};

}  // namespace tern::optim
