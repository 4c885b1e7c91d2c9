#pragma once

#include <cstdint>

#include "tern/data/sampler.h"
#include "tern/learner/train_state.h"

namespace tern {

/// The batches whose gradients make one step together, so that each sample of
/// the window weighs the same, on one rank or on many. It counts samples of all
/// ranks, so that all ranks reach the same decisions without a word. Private to
/// learner/.
class StepWindow {
 public:
  /// At the start of an epoch.
  /// \param batch_size  Of one rank.
  void begin(
      const Accumulation& accumulation,
      int64_t batch_size,
      int64_t world_size);

  /// Counts a batch in.
  /// \param is_last  The window ends with this batch, full or not.
  /// \return what to multiply the mean loss of this rank's batch by.
  double add(const ShardedSampler::RealSamples& samples, bool is_last);

  /// Whether the batch that was added last completes the window.
  bool is_complete() const { return is_complete_; }
  /// Batches were added since the last complete window.
  bool is_open() const { return batches_ > 0 && !is_complete_; }
  /// What to multiply the gradients of the complete window by: not 1 for one
  /// that ended early.
  double correction() const { return correction_; }
  void close() { batches_ = samples_ = 0; }

  // What a checkpoint in an open window needs.
  int64_t batches() const { return batches_; }
  int64_t samples() const { return samples_; }
  void restore(int64_t batches, int64_t samples);

 private:
  Accumulation accumulation_;
  int64_t world_size_ = 1;
  int64_t full_ = 0;                   // samples of a whole window
  int64_t batches_ = 0, samples_ = 0;  // in the open window
  bool is_complete_ = true;
  double correction_ = 1;
};

}  // namespace tern
