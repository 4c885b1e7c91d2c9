#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/distributed/process_group.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/state_dict.h"

namespace tern {

class MasterWeights;

/// ZeRO-1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
/// Trillion Parameter Models", section 5.1): each rank updates a part of the
/// parameters, keeps only this part's optimizer state and fp32 master weights,
/// and receives the remaining weights from the other ranks after each step.
/// Like torch's ZeroRedundancyOptimizer; single parameters are not split.
///
///   OptimizerShard shard(group);
///   shard.divide(optimizer);  // once; the training loop does not change
///
/// Gradients come from a GradientReducer and are the same on all ranks, so all
/// ranks detect an overflow in any of them. The weights are bit-identical to a
/// run without sharding.
class OptimizerShard final : public TrainingShard {
 public:
  explicit OptimizerShard(std::shared_ptr<ProcessGroup> group);

  /// Assigns each rank its part. Call this again after the optimizer's
  /// parameters were replaced by other tensors, or its state was loaded.
  ///
  /// \param optimizer  An optimizer of tern::optim, with all parameters on each
  ///                   rank.
  /// \param masters  For a 16-bit model, its complete master weights; otherwise
  ///                 null. Master weights in other ranks' parts are released.
  /// \throws c10::NotImplementedError for any other optimizer.
  void divide(
      torch::optim::Optimizer& optimizer,
      const std::shared_ptr<MasterWeights>& masters = nullptr);

  StateDict gather_state(const StateDict& mine) override;
  bool has_released_masters() const override { return has_released_masters_; }
  void gather_masters() override;
  void release_masters() override;
  /// Sets the missing master weights to the 16-bit weights; for use when other
  /// ranks are lost.
  void restore_masters();

  /// Returns the rank that updates each parameter. Parameters are assigned from
  /// the largest to the smallest, each to the rank with the least load so far.
  static std::vector<int64_t> owners(
      const std::vector<int64_t>& sizes,
      int64_t world_size);

 private:
  struct Master {
    torch::Tensor master, weight;
  };

  std::shared_ptr<ProcessGroup> group_;
  std::vector<std::vector<Master>> masters_;  // by owning rank
  bool has_released_masters_ = false;
};

}  // namespace tern
