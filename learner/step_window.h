#pragma once

#include <cstdint>

#include "tern/data/sampler.h"
#include "tern/learner/train_state.h"

namespace tern {

/// An accumulation window: the batches whose gradients are accumulated for one
/// optimizer step, on one rank or on several. Everything that a loss counts
/// (`Loss::count`) has the same weight, in whichever batch of the window it is.
/// Whether a window is complete depends only on numbers that are the same on
/// all ranks, so all ranks reach the same decision without communication.
/// Private to learner/.
class StepWindow {
 public:
  /// The count of a batch, that is, its weight in means: on this rank and over
  /// all ranks.
  struct Counts {
    double of_rank, of_all;
  };

  /// Starts a new window. Called at the start of an epoch, and before the first
  /// batch of each window, because callbacks may change the accumulation.
  /// \param batch_size  Of one rank.
  void begin(
      const Accumulation& accumulation,
      int64_t batch_size,
      int64_t world_size);

  /// Adds a batch that is weighted by its samples.
  /// \param is_last  The window ends with this batch even if it is not full.
  /// \return the factor for this rank's mean loss of the batch.
  double add(const ShardedSampler::RealSamples& samples, bool is_last);
  /// Returns the factor for the batch that was added last, given its counts.
  double weigh(const Counts& counts);

  /// Returns the factor for the gradients of the window's earlier batches, to
  /// apply before the last batch's gradients are added. It is less than 1 if
  /// the first batch's count was so small that the sum would exceed the range
  /// of 16 bits.
  double rescale() const { return rescale_; }
  /// Ends the window after the batch that was added last, although it was added
  /// with `is_last` false.
  void complete();
  /// True if the batch that was added last completes the window.
  bool is_complete() const { return is_complete_; }
  /// True if batches were added since the last complete window.
  bool is_open() const { return batches_ > 0 && !is_complete_; }
  /// Returns the factor for the gradients of the complete window. It is not 1
  /// if the window ended early, or if its batches have different counts.
  double correction() const { return correction_; }
  void close() { batches_ = samples_ = 0; }

  // For checkpoints that are saved in an open window.
  int64_t batches() const { return batches_; }
  int64_t samples() const { return samples_; }
  double counted() const { return is_open() ? now_.counted : 0; }
  double expected() const { return is_open() ? now_.expected : 0; }
  void restore(int64_t batches, int64_t samples);
  void
  restore(int64_t batches, int64_t samples, double counted, double expected);

 private:
  // The count of an open window so far, and the expected count, by which
  // gradients are divided until the final count is known.
  struct Sum {
    double counted = 0, expected = 0;
  };

  Accumulation accumulation_;
  int64_t world_size_ = 1;
  int64_t full_ = 0;  // samples of a full window, over all ranks
  int64_t batches_ = 0, samples_ = 0;  // in the open window
  int64_t added_ = 0;                  // samples of the last batch
  Sum before_, now_;                   // before and after the last batch
  bool is_complete_ = true;
  double correction_ = 1, rescale_ = 1;
};

}  // namespace tern
