#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "tern/data/batch_iterator.h"
#include "tern/data/dataset.h"
#include "tern/data/sampler.h"

namespace tern {

struct DataLoaderOptions {
  // ---- What a batch is ----

  int64_t batch_size = 64;
  /// A new random order every epoch. Ignored when `sampler` is given.
  bool shuffle = false;
  /// Leaves out the last batch when it is smaller than the others.
  bool drop_last = false;
  /// Passed on to the data set: whether it may augment.
  bool training = false;
  /// The order of the samples; null: random or sequential by `shuffle`.
  std::shared_ptr<const Sampler> sampler = {};
  /// Key of all randomness, with the epoch and the sample. Batches are equal
  /// for any number of workers.
  uint64_t seed = 42;

  // ---- How fast it comes ----

  /// Threads that make batches while others train. 0: the calling thread makes
  /// each batch when it is asked for. -1: the number of cores less one, 16 at
  /// most, at least 1.
  int64_t workers = -1;
  /// Batches made ahead, for each worker.
  int64_t prefetch = 4;
  /// Page-locked batches, for copies that overlap with computation. Unset: yes
  /// when there is a CUDA device.
  std::optional<bool> pin_memory = {};
  /// How long `next` waits for a batch before it throws; 0: for ever.
  std::chrono::milliseconds timeout{0};
};

/// Cuts a data set into batches and has worker threads make them ahead, in
/// order.
///
///   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});
///   for (int64_t epoch = 0; epoch < 3; ++epoch) {
///     for (const Batch& batch : loader) { ... }
///   }
///
/// Each such loop is the next pass: the first is `epoch(0)`, the second
/// `epoch(1)`, each with a new order if `shuffle` is set. A loop that is left
/// early ends its worker threads.
class DataLoader {
 public:
  /// \throws c10::ValueError for an option out of its range.
  explicit DataLoader(
      std::shared_ptr<const Dataset> dataset,
      DataLoaderOptions options = {});

  /// One pass over the data. Owns the worker threads and joins them when it
  /// goes, also in the middle of an epoch; one that hangs in the data set for
  /// more than 10 s is left behind.
  class Epoch {
   public:
    Epoch(Epoch&&) noexcept;
    ~Epoch();

    /// The next batch, or nothing at the end. Rethrows what the data set threw
    /// as a DataError that names the sample, with the original nested in it
    /// (`std::rethrow_if_nested`); the pass is over then.
    /// \param stop  Ends the wait for a worker, with nothing, once it is true.
    std::optional<Batch> next(const std::atomic<bool>* stop = nullptr);

   private:
    friend class DataLoader;
    struct Workers;
    explicit Epoch(std::shared_ptr<Workers> workers);
    std::shared_ptr<Workers> workers_;
  };

  /// Starts pass number `epoch`, at batch `first_batch` of it.
  Epoch epoch(int64_t epoch, int64_t first_batch = 0) const;

  /// Starts the next pass. Only loops count as passes: `epoch` and a Learner's
  /// fit do not change which one is next.
  BatchIterator<Epoch> begin() { return BatchIterator(epoch(next_pass_++)); }
  std::default_sentinel_t end() const { return {}; }

  /// The same data once and in order, the last batch too.
  /// \param augments  Whether the data set may augment, whatever these batches
  ///                  are for.
  DataLoader in_order(bool augments = false) const;

  /// Batches an epoch.
  int64_t size() const;
  const Dataset& dataset() const { return *dataset_; }
  std::shared_ptr<const Dataset> dataset_ptr() const { return dataset_; }
  /// The options as given, with `workers` and `pin_memory` resolved.
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
