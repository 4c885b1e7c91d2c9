#include "tern/data/stream_dataset.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tern/data/formats/error.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// One epoch of a stream; only the samples in `order` are needed.
class StreamEpoch final : public Dataset {
 public:
  StreamEpoch(
      std::shared_ptr<const StreamDataset> stream,
      StreamEpochs::Decode decode,
      int64_t samples,
      c10::ArrayRef<int64_t> order,
      const BatchContext& context)
      : stream_(std::move(stream)),
        decode_(std::move(decode)),
        context_(context),
        can_restart_(stream_->can_restart()),
        uses_(static_cast<size_t>(samples)),
        pass_(stream_->pass(context)) {
    for (const int64_t index : order) ++uses_.at(index);
  }

  int64_t size() const override { return static_cast<int64_t>(uses_.size()); }
  bool can_end_early() const override { return !can_restart_; }

  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    std::vector<Batch> samples;
    std::vector<int64_t> rows, left_out;
    {
      const std::lock_guard lock(mutex_);
      for (int64_t row = 0; row < std::ssize(indices); ++row) {
        if (const Batch* const sample = drawn(indices[row])) {
          samples.push_back(*sample);
          rows.push_back(row);
        } else {
          left_out.push_back(row);
        }
      }
    }
    for (size_t i = 0; decode_ && i < samples.size(); ++i) {
      const BatchContext of_row = context.of_row(rows[i]);
      samples[i] = decode_(samples[i], of_row, of_row.rng(indices[rows[i]]));
    }
    Batch batch = collate(samples, context);
    batch.left_out = std::move(left_out);
    // Done last, because after an error the loader requests the samples again,
    // one by one.
    const std::lock_guard lock(mutex_);
    for (const int64_t index : indices) {
      if (--uses_[index] == 0) drawn_.erase(index);
    }
    return batch;
  }

 private:
  // Returns the sample at `index`; null if the pass ends before it and is not
  // repeated. Samples before it that are needed later are kept, so that workers
  // may request samples in any order.
  const Batch* drawn(int64_t index) const {
    for (; position_ <= index && !has_ended_; ++position_) {
      if (uses_[position_] == 0) {
        // A stream that cannot restart has already passed the samples before a
        // resume.
        if (can_restart_) {
          from_pass([&] { return pass_->skip(); });
        }
      } else {
        std::optional<Batch> sample;
        from_pass([&] { return (sample = pass_->next()).has_value(); });
        if (has_ended_) break;
        if (sample->size() != 1) {
          throw DataError(
              describe(position_),
              fmt::format(
                  "the stream returned a batch of {}; expected one sample, N = "
                  "1.",
                  sample->size()));
        }
        drawn_[position_] = *std::move(sample);
      }
    }
    const auto found = drawn_.find(index);
    return found == drawn_.end() ? nullptr : &found->second;
  }

  template <class Take>
  void from_pass(const Take& take) const {
    if (take()) return;
    const bool is_repeated = context_.training && can_restart_;
    if (!is_repeated && (context_.training || position_ > 0)) {
      has_ended_ = true;
      return;
    }
    pass_ = stream_->pass(context_);
    if (take()) return;
    throw DataError(
        "",
        "[StreamEpochs] a pass over the stream returned no sample; expected at "
        "least one. Check its source.");
  }

  std::shared_ptr<const StreamDataset> stream_;
  StreamEpochs::Decode decode_;
  BatchContext context_;
  bool can_restart_;
  mutable std::mutex mutex_;
  mutable std::vector<int32_t> uses_;  // how often each is still needed
  mutable std::unique_ptr<StreamDataset::Pass> pass_;
  mutable int64_t position_ = 0;    // of the next sample of `pass_`
  mutable bool has_ended_ = false;  // true: the only pass is over
  mutable std::unordered_map<int64_t, Batch> drawn_;
};

}  // namespace

StreamEpochs::StreamEpochs(
    std::shared_ptr<const StreamDataset> stream,
    int64_t samples,
    Decode decode)
    : stream_(std::move(stream)),
      samples_(samples),
      decode_(std::move(decode)) {
  TERN_CHECK_VALUE(
      stream_ && samples_ >= 1,
      "[StreamEpochs] got {} and an epoch of {} samples; expected a stream and "
      "at least 1 sample.",
      stream_ ? "a stream" : "no stream",
      samples_);
}

std::shared_ptr<const Dataset> StreamEpochs::begin_epoch(
    c10::ArrayRef<int64_t> order,
    const BatchContext& context) const {
  // If a sample is missing, all later samples of the stream are missing too.
  TORCH_CHECK_VALUE(
      !context.training || stream_->can_restart() ||
          std::ranges::is_sorted(order),
      "[StreamEpochs] the samples of a stream that cannot restart are read in "
      "a shuffled order; expected them in order. Use a SequentialSampler, and "
      "a Subset with increasing indices, and shuffle within the stream.");
  return std::make_shared<StreamEpoch>(
      stream_,
      decode_,
      samples_,
      order,
      context);
}

Batch StreamEpochs::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  return begin_epoch(indices, context)->get_batch(indices, context);
}

}  // namespace tern
