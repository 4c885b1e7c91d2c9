#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tern/data/batch_iterator.h"
#include "tern/data/stream_dataset.h"

namespace tern {

struct StreamLoaderOptions {
  // ---- What a batch is ----

  int64_t batch_size = 64;
  /// Leaves out the last batch when it is smaller than the others.
  bool drop_last = false;
  /// Batches an epoch. 0: as many as the stream gives, which is then known only
  /// at its end and may differ between ranks.
  int64_t batches = 0;
  /// Passed on to the data set: whether it may augment.
  bool training = false;
  uint64_t seed = 42;
  /// Parts of the stream that are read at the same time and take turns, one
  /// sample each. With the seed they decide on the order of the samples; the
  /// workers do not.
  int64_t lanes = 4;
  /// Which of the processes this is.
  int64_t rank = 0, world_size = 1;

  // ---- How fast it comes ----

  /// Threads, each for some lanes, so that more than `lanes` are no use. 0: the
  /// calling thread. -1: the number of cores less one, at least 1.
  int64_t workers = -1;
  /// Samples that are made ahead in each lane.
  int64_t prefetch = 64;
};

/// Batches of a stream, made ahead by worker threads.
///
///   StreamLoader loader(stream, {.batch_size = 64, .batches = 1000});
///   for (const Batch& batch : loader) { ... }
///
/// As with a DataLoader, each such loop is the next pass, from `epoch(0)` on.
/// The batches are the same for any number of workers, and an epoch can be
/// begun anywhere.
class StreamLoader {
 public:
  /// \throws c10::ValueError for an option out of its range, and for an endless
  ///         stream without `batches`.
  explicit StreamLoader(
      std::shared_ptr<const StreamDataset> dataset,
      StreamLoaderOptions options = {});

  /// One pass. Owns the worker threads and joins them when it goes.
  class Epoch {
   public:
    Epoch(Epoch&&) noexcept;
    ~Epoch();
    /// The next batch, or nothing at the end. Rethrows what the data set threw;
    /// the pass is over then.
    std::optional<Batch> next();

   private:
    friend class StreamLoader;
    struct Lanes;
    explicit Epoch(std::unique_ptr<Lanes> lanes);
    std::unique_ptr<Lanes> lanes_;
  };

  /// Starts pass number `epoch` at batch `first_batch` of it; the samples
  /// before that are skipped, which takes time, but none are made.
  Epoch epoch(int64_t epoch, int64_t first_batch = 0) const;

  /// Starts the next pass.
  BatchIterator<Epoch> begin() { return BatchIterator(epoch(next_pass_++)); }
  std::default_sentinel_t end() const { return {}; }

  /// The options as given, with `workers` resolved.
  const StreamLoaderOptions& options() const { return options_; }

 private:
  std::shared_ptr<const StreamDataset> dataset_;
  StreamLoaderOptions options_;
  int64_t next_pass_ = 0;  // the epoch of the next `begin`
};

}  // namespace tern
