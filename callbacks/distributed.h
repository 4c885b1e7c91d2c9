#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tern/learner/callback.h"
#include "tern/learner/distributed/gradient_reducer.h"
#include "tern/learner/distributed/launch_environment.h"
#include "tern/learner/distributed/process_group.h"

namespace tern {

/// Options of `Learner::to_distributed`.
struct DistributedOptions {
  ProcessGroupOptions group = {};
  GradientReducerOptions reducer = {};
  /// BatchNorm takes its statistics over the batches of all ranks; see
  /// learner/distributed/convert_sync_batchnorm.h.
  bool sync_batch_norm = false;
  /// Each rank keeps its part of the optimizer's state and fp32 masters: less
  /// memory, the same bits; see callbacks/sharded_optimizer.h.
  bool shard_optimizer = false;
};

/// Averages gradients over the processes that train together; what
/// `Learner::to_distributed` adds.
///
///   torchrun --no-python --nproc-per-node 2 ./my_program
///
/// Each rank gets its share of every batch, so that the batch size counts for
/// one rank, as with torch's DistributedDataParallel. Weights begin as those of
/// rank 0. Validation is shared out too, and its loss and metrics are those of
/// the whole set, with equal bits on all ranks, so that all take the same
/// decisions. Rank 0 prints and writes files. A stop or an error of one rank
/// ends the fit on all.
///
/// Random numbers of LibTorch's generators are keyed by (seed, rank, step), so
/// that dropout differs between ranks and a resumed training goes on exactly.
class Distributed final : public Callback {
 public:
  Distributed(
      std::shared_ptr<ProcessGroup> group,
      GradientReducerOptions options);

  /// \throws DistributedError if another rank trains something else.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  void on_load(Learner& learn) override;
  void on_exception(Learner& learn, const std::exception& error) override;
  /// After those that decide about the step or ask for a stop.
  int order() const override { return callback_order::kLast; }

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// Of the last complete fit.
  const CommunicationTimes& times() const { return times_; }

 private:
  void check_equal(Learner& learn);
  void broadcast_weights(Learner& learn);
  void broadcast_optimizer(Learner& learn);

  std::shared_ptr<ProcessGroup> group_;
  GradientReducerOptions options_;
  std::unique_ptr<GradientReducer> reducer_;
  CommunicationTimes times_;
  bool has_loaded_ = false;  // in this fit
};

}  // namespace tern
