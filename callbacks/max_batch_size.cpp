#include "tern/callbacks/max_batch_size.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/data/memory.h"
#include "tern/learner/checkpoint/snapshot.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/trial.h"

namespace tern {

namespace {

void check(const MaxBatchSizeOptions& options) {
  TORCH_CHECK_VALUE(
      options.first >= 0 && options.most >= 0 && options.memory_limit >= 0 &&
          options.steps >= 1,
      fmt::format(
          "[Learner::max_batch_size] first is {}, most is {}, memory_limit is "
          "{}, steps is {}; expected no negative number and at least 1 step.",
          options.first,
          options.most,
          options.memory_limit,
          options.steps));
}

// What a step took with some batch size.
struct Measured {
  int64_t batch_size, bytes;
};

// Trains with one batch size after the other; what that changes is put back.
class Trials {
 public:
  Trials(Learner& learn, const MaxBatchSizeOptions& options)
      : learn_(learn),
        steps_(options.steps),
        limit_(options.memory_limit),
        loader_(learn.data().train) {
    const torch::Device device = learn.data().device;
    if (limit_ == 0 && device.is_cpu()) {
      limit_ = available_memory(device) / 10 * 9;
    }
    if (limit_ == 0) limit_ = std::numeric_limits<int64_t>::max();
  }

  bool fits(int64_t batch_size) {
    if (expected_bytes(batch_size) > limit_) return false;
    const auto bytes = measure(batch_size);
    if (!bytes) return false;
    trials_.push_back({batch_size, *bytes});
    return *bytes <= limit_;
  }

 private:
  // Activations grow with the batch; so a line through the last two trials.
  // A trial that is expected not to fit is not made: on a CPU it would end the
  // program.
  double expected_bytes(int64_t batch_size) const {
    if (trials_.empty()) return 0;
    const auto size = static_cast<double>(batch_size);
    const Measured& last = trials_.back();
    const auto bytes = static_cast<double>(last.bytes);
    if (trials_.size() == 1) {
      return bytes * std::min(1.0, size / static_cast<double>(last.batch_size));
    }
    const Measured& before = *std::prev(trials_.end(), 2);
    const double per_sample =
        static_cast<double>(last.bytes - before.bytes) /
        static_cast<double>(last.batch_size - before.batch_size);
    return bytes + per_sample * (size - static_cast<double>(last.batch_size));
  }

  // Nothing when there was not memory enough.
  std::optional<int64_t> measure(int64_t batch_size) {
    DataLoaderOptions options = loader_->options();
    options.batch_size = batch_size;
    options.drop_last = true;  // or the second step may be a short one
    LearnerSnapshot before(learn_);
    const auto undo = [&] {
      learn_.data().train = loader_;
      before.restore();
      give_back_unused_memory(learn_.data().device);
    };
    try {
      learn_.data().train =
          std::make_shared<DataLoader>(loader_->dataset_ptr(), options);
      const MemoryMeter memory(learn_.data().device);
      const int64_t at_first = memory.live_bytes();
      const int64_t batches = std::max<int64_t>(1, learn_.batches_per_epoch());
      learn_.fit(
          (steps_ + batches - 1) / batches,
          {},
          {std::make_shared<Trial>(),
           std::make_shared<StopAfterNBatches>(steps_)});
      const int64_t bytes = memory.peak_bytes() - at_first;
      undo();
      return bytes;
    } catch (const std::exception& error) {
      undo();
      if (!is_out_of_memory(error)) throw;
      return std::nullopt;
    }
  }

  Learner& learn_;
  int64_t steps_, limit_;
  std::shared_ptr<DataLoader> loader_;
  std::vector<Measured> trials_;
};

}  // namespace

int64_t Learner::max_batch_size() {
  return max_batch_size(MaxBatchSizeOptions{});
}

int64_t Learner::max_batch_size(const MaxBatchSizeOptions& options) {
  check(options);
  TORCH_CHECK(
      !parts_->is_fitting && !parts_->communicator,
      "[Learner::max_batch_size] this Learner is training, or shares its "
      "batches with other processes; call it before fit and to_distributed.");
  const DataLoader& train = parts_->data.loader(Split::train);
  const int64_t samples = train.sampler()->size();
  const int64_t most = options.most ? std::min(options.most, samples) : samples;
  int64_t size = std::clamp<int64_t>(
      options.first ? options.first : train.options().batch_size,
      1,
      most);
  Trials trials(*this, options);
  // Doubles what fits or halves what does not, then looks in between; to 5 %,
  // for what fits by a hair today does not tomorrow.
  int64_t fits = 0, fails = most + 1;
  while (fails - fits > std::max<int64_t>(1, fits / 20)) {
    (trials.fits(size) ? fits : fails) = size;
    TORCH_CHECK_VALUE(
        fails > 1,
        fmt::format(
            "[Learner::max_batch_size] not even one sample fits into the "
            "memory of {}, of which {} are free. Use a smaller model, smaller "
            "images, 16 bits or ActivationCheckpoint.",
            parts_->data.device.str(),
            bytes_text(available_memory(parts_->data.device))));
    size = fails > most ? std::min(most, 2 * fits)
           : fits == 0  ? fails / 2
                        : fits + (fails - fits) / 2;
  }
  return fits;
}

}  // namespace tern
