#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/learner/callback.h"
#include "tern/learner/distributed/gradient_reducer.h"
#include "tern/learner/distributed/launch_environment.h"
#include "tern/learner/distributed/process_group.h"
#include "tern/learner/model.h"

namespace tern {

/// Options of `Learner::to_distributed`.
struct DistributedOptions {
  ProcessGroupOptions group = {};
  GradientReducerOptions reducer = {};
  /// Computes BatchNorm's statistics over the batches of all ranks; see
  /// learner/distributed/sync_batch_norm.h.
  bool sync_batch_norm = false;
  /// Shards the optimizer's state, and the fp32 master weights of `to_fp16` and
  /// `to_bf16`, over the ranks. Uses less memory; the results are
  /// bit-identical. Sharded master weights cannot be combined with Ema or Swa,
  /// which read all master weights at each step.
  ///
  /// The master weights are sharded only while a fit runs; after the fit, every
  /// rank has all of them. If a rank is lost, its shard falls back to the
  /// 16-bit weights. A checkpoint contains all master weights, so all ranks
  /// must make every call that saves.
  bool shard_optimizer = false;
  /// Shards the data over the ranks; all ranks must have the same data. False:
  /// the program has already divided the data, and each rank trains and
  /// validates on all of its data; every rank then needs the same number of
  /// training batches. Like Lightning's `use_distributed_sampler`.
  bool shard_data = true;
  /// Compares a hash of the weights of all ranks at the end of each epoch.
  bool check_weights = true;
};

/// Trains with several processes, one per rank, and averages their gradients.
/// Added by `Learner::to_distributed`.
///
///   torchrun --no-python --nproc-per-node 2 ./my_program
///
/// The batch size is per rank, as with torch's DistributedDataParallel. All
/// ranks start with rank 0's weights. Validation is sharded too; its loss and
/// metrics cover the whole dataset and are bit-identical on all ranks, so that
/// all ranks make the same decisions. Rank 0 prints and writes files. A stop or
/// an error on one rank ends the fit on all ranks.
///
/// LibTorch's generators are seeded by (seed, rank, step), so that dropout
/// differs between ranks and a resumed run continues exactly.
class Distributed final : public Callback {
 public:
  explicit Distributed(
      std::shared_ptr<ProcessGroup> group,
      const DistributedOptions& options = {});

  /// \throws DistributedError if another rank has different data, options,
  ///         optimizer, metrics or callbacks.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_backward_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_load(Learner& learn) override;
  void on_exception(Learner& learn, const std::exception& error) override;
  /// Runs after the callbacks that skip a step or request a stop.
  int order() const override { return callback_order::kLast; }

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// Communication times of the last complete fit.
  const CommunicationTimes& times() const { return times_; }
  OptionValues option_values() const override;

 private:
  void check_equal(Learner& learn);
  void check_same_data(Learner& learn);
  void follow_frozen(Learner& learn);
  void broadcast_weights(Learner& learn);
  void broadcast_optimizer(Learner& learn);

  std::shared_ptr<ProcessGroup> group_;
  DistributedOptions options_;
  // The reducer of one backward pass of a step, and the parameters that require
  // a gradient in this pass.
  struct Reduced {
    std::vector<ModelTensor> parameters;
    std::unique_ptr<GradientReducer> reducer;
  };
  std::vector<Reduced> reducers_;
  CommunicationTimes times_;
  std::shared_ptr<const Dataset> compared_valid_;
  std::string valid_fingerprint_;
  int64_t loads_ = 0;  // weight loads in this fit, on this rank
};

}  // namespace tern
