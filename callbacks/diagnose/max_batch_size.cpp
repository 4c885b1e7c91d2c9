#include "tern/callbacks/diagnose/max_batch_size.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/data/support/memory.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/report/model_summary.h"

namespace tern {

namespace {

// The memory that a step used with a batch size.
struct Measured {
  int64_t batch_size, bytes;
};

// Trains with one batch size after another, and undoes all changes.
class BatchSizes {
 public:
  BatchSizes(Learner& learn, int64_t memory_limit)
      : learn_(learn), limit_(memory_limit), loader_(learn.data().train) {
    const torch::Device device = learn.data().device;
    if (limit_ == 0 && device.is_cpu()) {
      limit_ = available_memory(device) / 10 * 9;
    }
    if (limit_ == 0) limit_ = std::numeric_limits<int64_t>::max();
  }

  bool fits(int64_t batch_size) {
    if (expected_bytes(batch_size) > static_cast<double>(limit_)) return false;
    const auto bytes = measure(batch_size);
    if (!bytes) return false;
    measured_.push_back({batch_size, *bytes});
    return *bytes <= limit_;
  }

 private:
  // Activations grow linearly with the batch, so this extrapolates from the
  // last two measurements. A size that is expected not to fit is not tried,
  // because on a CPU it would kill the program.
  double expected_bytes(int64_t batch_size) const {
    if (measured_.empty()) return 0;
    const auto size = static_cast<double>(batch_size);
    const Measured& last = measured_.back();
    const auto bytes = static_cast<double>(last.bytes);
    if (measured_.size() == 1) {
      return bytes * std::min(1.0, size / static_cast<double>(last.batch_size));
    }
    const Measured& before = *std::prev(measured_.end(), 2);
    const double per_sample =
        static_cast<double>(last.bytes - before.bytes) /
        static_cast<double>(last.batch_size - before.batch_size);
    return bytes + per_sample * (size - static_cast<double>(last.batch_size));
  }

  // Unset if there was not enough memory. Runs two steps: the first one creates
  // the optimizer's state, the second one is representative.
  std::optional<int64_t> measure(int64_t batch_size) {
    DataLoaderOptions options = loader_->options();
    options.batch_size = batch_size;
    options.drop_last = true;  // otherwise the second batch may be smaller
    std::optional<int64_t> bytes;
    try {
      undo(learn_, [&] {
        learn_.data().train =
            std::make_shared<DataLoader>(loader_->dataset_ptr(), options);
        const auto restore =
            c10::make_scope_exit([&] { learn_.data().train = loader_; });
        bytes = peak_bytes_of_batches(learn_, /*batches=*/2, {});
      });
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      bytes.reset();
    }
    give_back_unused_memory(learn_.data().device);
    return bytes;
  }

  Learner& learn_;
  int64_t limit_;
  std::shared_ptr<DataLoader> loader_;
  std::vector<Measured> measured_;
};

}  // namespace

int64_t max_batch_size(Learner& learn, const MaxBatchSizeOptions& options) {
  const LearnerParts& l = parts_of(learn);
  const char* const where = "max_batch_size";
  check_at_least(where, "first", options.first, 0);
  check_at_least(where, "most", options.most, 0);
  check_at_least(where, "memory_limit", options.memory_limit, 0);
  TORCH_CHECK(
      !l.state.is_fitting && !l.ranks.communicator,
      "[max_batch_size] this Learner is training, or shares its "
      "batches with other processes; call it before fit and to_distributed.");
  const DataLoader& train = l.data.loader(Split::train);
  const int64_t samples = train.sampler()->size();
  const int64_t most = options.most ? std::min(options.most, samples) : samples;
  int64_t size = std::clamp<int64_t>(
      options.first ? options.first : train.options().batch_size,
      1,
      most);
  BatchSizes sizes(learn, options.memory_limit);
  // Doubles sizes that fit, halves sizes that do not, then bisects to 5%, since
  // a size that only just fits may not fit the next time.
  int64_t fits = 0, fails = most + 1;
  while (fails - fits > std::max<int64_t>(1, fits / 20)) {
    (sizes.fits(size) ? fits : fails) = size;
    TERN_CHECK_VALUE(
        fails > 1,
        "[max_batch_size] not even one sample fits into the memory of {}, of "
        "which {} are free. Use a smaller model, smaller images, 16-bit "
        "training or ActivationCheckpoint.",
        l.data.device.str(),
        bytes_text(available_memory(l.data.device)));
    size = fails > most ? std::min(most, 2 * fits)
           : fits == 0  ? fails / 2
                        : fits + (fails - fits) / 2;
  }
  return fits;
}

}  // namespace tern
