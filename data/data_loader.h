#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "tern/data/dataset.h"
#include "tern/data/sampler.h"

namespace tern {

struct DataLoaderOptions {
  // ---- Batches ----

  int64_t batch_size = 64;
  /// Reshuffles every epoch. Ignored if `sampler` is set.
  bool shuffle = false;
  /// Drops the last batch if it is smaller than the others.
  bool drop_last = false;
  /// Passed to the dataset: true if it may augment.
  bool training = false;
  /// Order of the samples. Null: random or sequential, depending on `shuffle`.
  std::shared_ptr<const Sampler> sampler = {};
  /// Together with the epoch and the sample's index, seeds all random numbers.
  /// Batches are the same for any number of workers.
  uint64_t seed = 42;

  // ---- Workers ----

  /// Threads that prepare batches in the background. 0: the calling thread
  /// prepares each batch. -1: the number of cores minus one, from 1 to 16.
  int64_t workers = -1;
  /// Batches that each worker prefetches.
  int64_t prefetch = 4;
  /// Page-locked batches, for asynchronous copies to a GPU. Unset: pinned if
  /// this process has tensors on a GPU when a pass begins, for example after a
  /// Learner for a GPU was created. A loader alone does not initialize CUDA.
  std::optional<bool> pin_memory = {};
  /// Maximum time that `next` waits for a batch before it throws; 0: no limit.
  std::chrono::milliseconds timeout{0};
};

/// Loads batches of a dataset in order, prefetched by worker threads.
///
///   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});
///   for (int64_t epoch = 0; epoch < 3; ++epoch) {
///     for (const Batch& batch : loader) { ... }
///   }
///
/// Each loop is one pass: the first is `epoch(0)`, the second `epoch(1)`,
/// reshuffled if `shuffle` is set. Leaving a loop early stops its workers.
class DataLoader {
 public:
  /// \throws c10::ValueError if an option is out of range.
  explicit DataLoader(
      std::shared_ptr<const Dataset> dataset,
      DataLoaderOptions options = {});

  /// One pass over the data. Its destructor joins the worker threads; a thread
  /// that hangs in the dataset for more than 10 s is detached.
  class Epoch {
   public:
    Epoch(Epoch&&) noexcept;
    ~Epoch();

    /// Returns the next batch, or nothing at the end. A batch is empty if the
    /// dataset left out all its samples (`Batch::left_out`). An exception from
    /// the dataset ends the pass and is rethrown as a DataError that names the
    /// sample, with the original exception nested in it
    /// (`std::rethrow_if_nested`).
    /// \param stop  Once this is true, returns nothing instead of waiting.
    std::optional<Batch> next(const std::atomic<bool>* stop = nullptr);
    /// True if the data of a training epoch ended before its last batch
    /// (Dataset::can_end_early). `next` has then returned the remaining
    /// samples, or nothing if there were none or `drop_last` is set.
    bool has_ended_early() const;

   private:
    friend class DataLoader;
    struct Workers;
    explicit Epoch(std::shared_ptr<Workers> workers);
    std::shared_ptr<Workers> workers_;
  };

  /// Input iterator over the batches of one pass. Copies share the pass; a
  /// batch is valid until the iterator advances.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(Epoch pass)
        : pass_(std::make_shared<Epoch>(std::move(pass))),
          batch_(pass_->next()) {}
    const Batch& operator*() const { return *batch_; }
    Iterator& operator++() {
      batch_ = pass_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return !it.batch_;
    }

   private:
    std::shared_ptr<Epoch> pass_;
    std::optional<Batch> batch_;
  };

  /// Starts pass `epoch` at its batch `first_batch`.
  Epoch epoch(int64_t epoch, int64_t first_batch = 0) const;

  /// Starts the next pass. Only loops are counted; `epoch` and a Learner's fit
  /// do not advance the count.
  Iterator begin() { return Iterator(epoch(next_pass_++)); }
  std::default_sentinel_t end() const { return {}; }

  /// Returns a loader of the same data in sequential order, including the last,
  /// incomplete batch.
  /// \param augments  True if the dataset may augment.
  DataLoader in_order(bool augments = false) const;
  /// Returns a loader of one rank's shard of the data, in the same order; the
  /// batch size is per rank. See ShardedSampler.
  DataLoader shard(int64_t rank, int64_t world_size, bool equal_batches) const;

  /// Batches per epoch.
  int64_t size() const;
  const Dataset& dataset() const { return *dataset_; }
  std::shared_ptr<const Dataset> dataset_ptr() const { return dataset_; }
  /// The options, with `workers` resolved.
  const DataLoaderOptions& options() const { return options_; }
  /// The order of the samples.
  const std::shared_ptr<const Sampler>& sampler() const { return sampler_; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::shared_ptr<const Sampler> sampler_;
  std::shared_ptr<BufferPool> buffers_;
  int64_t next_pass_ = 0;  // the epoch of the next `begin`
};

}  // namespace tern
