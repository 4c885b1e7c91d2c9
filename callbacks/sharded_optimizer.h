#pragma once

#include <memory>

#include "tern/learner/callback.h"
#include "tern/learner/distributed/optimizer_shard.h"

namespace tern {

/// Divides the optimizer's state, and the fp32 masters of `to_fp16` and
/// `to_bf16`, among the ranks; what `to_distributed({.shard_optimizer = true})`
/// adds.
///
/// The masters are divided while fit runs and whole after it. Should a rank be
/// lost, the others are left with the 16-bit weights for the masters that it
/// had; a checkpoint has them all. All ranks make the calls that save.
class ShardedOptimizer final : public Callback {
 public:
  explicit ShardedOptimizer(std::shared_ptr<OptimizerShard> shard)
      : shard_(std::move(shard)) {}

  /// \throws c10::ValueError beside Ema or Swa, which read all masters at each
  ///         step.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  /// Before those that save or load at the end.
  int order() const override { return callback_order::kFirst; }

 private:
  std::shared_ptr<OptimizerShard> shard_;
  bool is_divided_ = false;
};

}  // namespace tern
