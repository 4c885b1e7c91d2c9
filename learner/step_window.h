#pragma once

#include <cstdint>

#include "tern/data/sampler.h"
#include "tern/learner/train_state.h"

namespace tern {

/// The batches whose gradients make one step together, so that all that their
/// losses count weighs the same, on one rank or on many. When a window is
/// complete is a matter of the samples of all ranks, so that all ranks reach the
/// same decisions without a word. Private to learner/.
class StepWindow {
 public:
  /// How much a batch's loss counts, which is a mean over that.
  struct Counts {
    double of_rank, of_all;
  };

  /// At the start of an epoch.
  /// \param batch_size  Of one rank.
  void begin(
      const Accumulation& accumulation,
      int64_t batch_size,
      int64_t world_size);

  /// Counts a batch in, whose loss counts samples.
  /// \param is_last  The window ends with this batch, full or not.
  /// \return what to multiply the mean loss of this rank's batch by.
  double add(const ShardedSampler::RealSamples& samples, bool is_last);
  /// The same for the batch that was added last, whose loss counts this.
  double weigh(const Counts& counts);

  /// What to multiply the gradients of the window's earlier batches by, before
  /// those of the last are added: less than 1 where the first counted so little
  /// that the sum would grow beyond what 16 bits hold.
  double rescale() const { return rescale_; }
  /// Whether the batch that was added last completes the window.
  bool is_complete() const { return is_complete_; }
  /// Batches were added since the last complete window.
  bool is_open() const { return batches_ > 0 && !is_complete_; }
  /// What to multiply the gradients of the complete window by: not 1 for one
  /// that ended early, or whose batches did not all count as much as the first.
  double correction() const { return correction_; }
  void close() { batches_ = samples_ = 0; }

  // What a checkpoint in an open window needs.
  int64_t batches() const { return batches_; }
  int64_t samples() const { return samples_; }
  double counted() const { return is_open() ? now_.counted : 0; }
  double expected() const { return is_open() ? now_.expected : 0; }
  void restore(int64_t batches, int64_t samples);
  void
  restore(int64_t batches, int64_t samples, double counted, double expected);

 private:
  // What the losses of an open window have counted, and what the gradients are
  // divided by until it is known what all of them count.
  struct Sum {
    double counted = 0, expected = 0;
  };

  Accumulation accumulation_;
  int64_t world_size_ = 1;
  int64_t full_ = 0;                   // samples of a whole window
  int64_t batches_ = 0, samples_ = 0;  // in the open window
  int64_t added_ = 0;                  // samples of the last batch
  Sum before_, now_;                   // the last batch
  bool is_complete_ = true;
  double correction_ = 1, rescale_ = 1;
};

}  // namespace tern
