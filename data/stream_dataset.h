#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tern/data/dataset.h"

namespace tern {

/// Which part of a stream is wanted, and what a data set is told about it.
struct StreamContext {
  /// Seed of the run and number of the epoch: keys of all randomness.
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool training = false;
  /// Whose part: the streams of all ranks, and of all lanes of each, together
  /// give every sample once.
  int64_t rank = 0, world_size = 1;
  int64_t lane = 0, lanes = 1;
};

/// Samples that come one after the other and are not counted: those of a pipe,
/// a message queue, shards that are not indexed. One with a known size is a
/// Dataset.
class StreamDataset {
 public:
  virtual ~StreamDataset() = default;

  /// One pass over a part. Used by one thread at a time, but for `give_up`.
  class Pass {
   public:
    virtual ~Pass() = default;
    /// The next sample, as a batch of one (N = 1); nothing at the end, also
    /// when it is asked again.
    virtual std::optional<Batch> next() = 0;
    /// Leaves one out, as cheaply as it can. \return false at the end.
    virtual bool skip() { return next().has_value(); }
    /// Ends a `next` that waits for something, and all that follow, as soon as
    /// it can. Called from another thread.
    virtual void give_up() {}
  };

  /// Begins a pass, which may outlive the data set. What it gives depends on
  /// the context alone. Called by several threads.
  virtual std::unique_ptr<Pass> pass(const StreamContext& context) const = 0;

  /// Whether a pass never ends, so that an epoch has to be cut off.
  virtual bool is_endless() const { return false; }
};

}  // namespace tern
