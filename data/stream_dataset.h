#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "tern/data/dataset.h"

namespace tern {

/// Samples that arrive one after another and are not counted: those of a pipe,
/// a message queue, or shards without an index. StreamEpochs makes them
/// trainable.
class StreamDataset {
 public:
  virtual ~StreamDataset() = default;

  /// One pass over the stream. Used by one thread at a time.
  class Pass {
   public:
    virtual ~Pass() = default;
    /// Returns the next sample as a batch of one (N = 1), or nothing at the
    /// end.
    virtual std::optional<Batch> next() = 0;
    /// Leaves out one sample: one that another rank trains on, or one from
    /// before the batch at which training resumes. Override it where that is
    /// cheaper than `next`, or to do nothing where each rank has a source of
    /// its own. \return false at the end.
    virtual bool skip() { return next().has_value(); }
  };

  /// Whether a pass can begin again where another one has ended. False for a
  /// camera or a message queue: a training epoch then ends where the stream does,
  /// and a fit with that epoch. What `lr_find` or `summary` reads is used up.
  virtual bool can_restart() const { return true; }

  /// Begins a pass, which may outlive the dataset. For an exact resume its
  /// samples must depend on the context alone. Thread-safe.
  virtual std::unique_ptr<Pass> pass(const BatchContext& context) const = 0;
};

/// A stream as a Dataset: an epoch is `samples` of it, so that a DataLoader and
/// a Learner take it as they take any other.
///
///   auto train = std::make_shared<StreamEpochs>(stream, 10'000, decode);
///   auto data = DataBunch::create(
///       train,
///       valid,
///       {.sampler = std::make_shared<BufferedSampler>(
///            std::vector<int64_t>{10'000}, 1000)});
///
/// Every epoch begins a pass. In training one that ends early begins again, if
/// it can (`StreamDataset::can_restart`); else, and in evaluation, what it lacks
/// is left out (`Batch::left_out`), so that no sample counts twice, and `samples`
/// may be more than there are. Samples are read in
/// order by one worker at a time and decoded by all workers, so the batches do
/// not depend on the number of workers. A shuffled order keeps in memory what
/// the stream gives before its turn: at most the sampler's buffer, or an epoch
/// with `shuffle = true`. Ranks share an epoch: each skips the samples of the
/// others. Resume skips the samples before its batch.
class StreamEpochs final : public Dataset {
 public:
  /// Turns what `next` gave into the sample to train on. Called from several
  /// threads; `rng` are the sample's random numbers of this epoch.
  using Decode = std::function<
      Batch(const Batch& sample, const BatchContext& context, SampleRng rng)>;

  /// \param samples  The length of an epoch, at least 1.
  /// \param decode   Null: samples stay as they are.
  /// \throws c10::ValueError if there is no stream or no sample in an epoch.
  StreamEpochs(
      std::shared_ptr<const StreamDataset> stream,
      int64_t samples,
      Decode decode = nullptr);

  int64_t size() const override { return samples_; }
  /// Reads a pass of its own from the start: for a look at a few samples.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  bool can_end_early() const override { return !stream_->can_restart(); }
  std::shared_ptr<const Dataset> begin_epoch(
      c10::ArrayRef<int64_t> order,
      const BatchContext& context) const override;

 private:
  std::shared_ptr<const StreamDataset> stream_;
  int64_t samples_;
  Decode decode_;
};

}  // namespace tern
