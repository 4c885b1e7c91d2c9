#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "tern/data/dataset.h"

namespace tern {

/// A stream of samples of unknown length, for example from a pipe, a message
/// queue, or shards without an index. Like PyTorch's IterableDataset.
/// StreamEpochs turns a stream into a dataset for training.
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
    /// Skips one sample: one that another rank trains on, or one before the
    /// batch at which training resumes. Override it if skipping is cheaper than
    /// `next`. If each rank has its own source, override it to return true
    /// without skipping.
    /// \return false at the end of the pass.
    virtual bool skip() { return next().has_value(); }
  };

  /// True if a new pass can begin after another one has ended. False for a
  /// camera or a message queue: a training epoch, and the fit, then end when
  /// the stream ends, and samples read by `lr_find` or `summary` are consumed.
  virtual bool can_restart() const { return true; }

  /// Begins a pass, which may outlive the dataset. For an exact resume, its
  /// samples must depend only on the context. Must be thread-safe.
  virtual std::unique_ptr<Pass> pass(const BatchContext& context) const = 0;
};

/// A stream as a Dataset: each epoch has `samples` samples of the stream, so
/// that a DataLoader and a Learner can use it like any other dataset.
///
///   auto train = std::make_shared<StreamEpochs>(stream, 10'000, decode);
///   auto data = DataBunch::create(
///       train,
///       valid,
///       {.sampler = std::make_shared<BufferedSampler>(
///            std::vector<int64_t>{10'000}, 1000)});
///
/// Every epoch begins a pass. In training, if a pass ends early, another one
/// begins, provided the stream can restart (`StreamDataset::can_restart`).
/// Otherwise, and in evaluation, the missing samples are left out
/// (`Batch::left_out`), so no sample counts twice, and `samples` may exceed the
/// length of the stream. One worker at a time reads samples in order; all
/// workers decode, so the batches do not depend on the number of workers. With
/// a shuffled order, samples that are read before their turn are kept in
/// memory: at most the sampler's buffer, or a whole epoch if `shuffle` is true.
/// Ranks share an epoch: each rank skips the samples of the others. A resumed
/// run skips the samples before its first batch. In a stream that cannot
/// restart, no samples are skipped.
class StreamEpochs final : public Dataset {
 public:
  /// Converts the result of `next` to the sample to train on. Called from
  /// several threads; `rng` is the sample's random number generator in this
  /// epoch.
  using Decode = std::function<
      Batch(const Batch& sample, const BatchContext& context, SampleRng rng)>;

  /// \param samples  Length of an epoch, at least 1.
  /// \param decode   Null: samples are unchanged.
  /// \throws c10::ValueError without a stream or if `samples` is below 1.
  StreamEpochs(
      std::shared_ptr<const StreamDataset> stream,
      int64_t samples,
      Decode decode = nullptr);

  int64_t size() const override { return samples_; }
  /// Reads from the start in a separate pass, to inspect a few samples.
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
