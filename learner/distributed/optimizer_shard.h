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
/// Trillion Parameter Models", section 5.1): each rank steps a part of the
/// parameters, keeps the optimizer's state and the fp32 masters of that part
/// alone, and gets the rest of the weights from the others after each step. As
/// torch's ZeroRedundancyOptimizer, with parameters left whole.
///
///   OptimizerShard shard(group);
///   shard.divide(optimizer);  // once; then loop as without it
///
/// Gradients are those of a GradientReducer, alike on all ranks, so that all
/// see an overflow in any of them, and weights come out with the bits of a
/// training that is not divided.
class OptimizerShard final : public TrainingShard {
 public:
  explicit OptimizerShard(std::shared_ptr<ProcessGroup> group);

  /// Gives every rank its part. Again after the optimizer's parameters have
  /// become other tensors, or its state was loaded.
  ///
  /// \param optimizer  One of tern::optim, with all parameters on each rank.
  /// \param masters    Of a 16-bit model, all of them there; else null. Those
  ///                   of the other ranks are released.
  /// \throws c10::NotImplementedError for another optimizer.
  void divide(
      torch::optim::Optimizer& optimizer,
      const std::shared_ptr<MasterWeights>& masters = nullptr);

  StateDict gather_state(const StateDict& mine) override;
  bool has_released_masters() const override { return has_released_masters_; }
  void gather_masters() override;
  void release_masters() override;
  /// When the others cannot be asked any more: the masters that are not here
  /// become the 16-bit weights.
  void restore_masters();

  /// Which rank steps each parameter: the largest first, to the rank that has
  /// least.
  static std::vector<int64_t> owners(
      const std::vector<int64_t>& sizes,
      int64_t world_size);

 private:
  struct Master {
    torch::Tensor master, weight;
  };

  std::shared_ptr<ProcessGroup> group_;
  std::vector<std::vector<Master>> masters_;  // by the rank that steps them
  bool has_released_masters_ = false;
};

}  // namespace tern
