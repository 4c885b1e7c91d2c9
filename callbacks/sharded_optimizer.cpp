#include "tern/callbacks/sharded_optimizer.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/averaged_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

void ShardedOptimizer::on_train_begin(Learner& learn) {
  is_divided_ = false;
  const auto average = learn.find<WeightAverage>();
  TORCH_CHECK_VALUE(
      !average || !master_weights(learn),
      fmt::format(
          "[to_distributed] shard_optimizer divides the fp32 weights, all of "
          "which {} reads at each step; leave one of them out, or train in "
          "fp32 or with to_amp.",
          average ? average->name() : ""));
}

// Once everybody, a checkpoint too, has set up the optimizer.
void ShardedOptimizer::on_batch_begin(Learner& learn) {
  if (is_divided_ || !learn.state().training) return;
  shard_->divide(learn.optimizer(), master_weights(learn));
  is_divided_ = true;
}

void ShardedOptimizer::on_train_end(Learner& learn) {
  if (!shard_->has_released_masters()) return;
  if (learn.state().failed) return shard_->restore_masters();
  try {
    shard_->gather_masters();
  } catch (...) {
    shard_->restore_masters();
    throw;
  }
}

}  // namespace tern
