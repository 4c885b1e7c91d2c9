#pragma once

#include "tern/learner/state_dict.h"

namespace tern {

/// How what ranks have divided among them comes together, as a Learner sees it;
/// OptimizerShard of learner/distributed/ is one. All ranks make each call.
class TrainingShard {
 public:
  virtual ~TrainingShard() = default;
  /// The optimizer's state of all ranks, of which this one has `mine`: on rank
  /// 0; elsewhere `mine`.
  virtual StateDict gather_state(const StateDict& mine) = 0;
  /// Whether the fp32 masters that other ranks step are given back here.
  virtual bool has_released_masters() const = 0;
  virtual void gather_masters() = 0;
  virtual void release_masters() = 0;
};

/// While it lives all masters are there, on every rank.
class WholeMasters {
 public:
  explicit WholeMasters(TrainingShard* shard)
      : shard_(shard && shard->has_released_masters() ? shard : nullptr) {
    if (shard_) shard_->gather_masters();
  }
  ~WholeMasters() {
    if (shard_) shard_->release_masters();
  }
  WholeMasters(const WholeMasters&) = delete;

 private:
  TrainingShard* shard_;
};

}  // namespace tern
