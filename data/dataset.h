#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/support/random.h"

namespace tern {

/// A pool of memory for CPU tensors. Memory is reused once no tensor uses it,
/// so a loader allocates nothing after the first batches. Thread-safe.
class BufferPool {
 public:
  /// \param pin_memory  Allocates page-locked memory for copies to a GPU, from
  ///                    LibTorch's caching allocator, which waits for
  ///                    asynchronous copies.
  explicit BufferPool(bool pin_memory = false) : pin_memory_(pin_memory) {}

  /// Applies from the next tensor on. Thread-safe.
  void set_pin_memory(bool pin_memory) { pin_memory_ = pin_memory; }

  /// Returns an uninitialized tensor, possibly in reused memory.
  torch::Tensor empty(c10::IntArrayRef sizes, torch::ScalarType dtype);

 private:
  std::atomic<bool> pin_memory_;
  std::mutex mutex_;
  std::vector<torch::Tensor> tensors_;  // own the memory
};

/// Describes the batch that a Dataset creates.
struct BatchContext {
  /// Seed of the run and index of the epoch. Together with the index of a
  /// sample, they seed its random numbers.
  uint64_t seed = 0;
  int64_t epoch = 0;
  /// True for training, where augmentation applies.
  bool training = false;
  /// Pool of reusable batch memory; may be null.
  BufferPool* buffers = nullptr;
  /// For each row of the batch, how often its sample occurred earlier in the
  /// epoch's order, which all ranks share; more than 0 with a WeightedSampler,
  /// for example. Empty: all 0. Valid only during the call. A dataset that
  /// forwards only some of the rows to another dataset passes it `of_rows` or
  /// `of_row`.
  c10::ArrayRef<int64_t> occurrences = {};

  /// Returns an uninitialized CPU tensor, reused from an earlier batch if
  /// possible, and pinned according to `DataLoaderOptions::pin_memory`.
  torch::Tensor empty(c10::IntArrayRef sizes, torch::ScalarType dtype) const;
  /// Returns the context of the sample in row `row` of the batch. A sample that
  /// occurs several times in an epoch gets a different seed each time.
  BatchContext of_row(int64_t row) const;
  /// Returns the context of `count` rows starting at `begin`.
  BatchContext of_rows(int64_t begin, int64_t count) const;
  /// Returns the context of the same batch with different random numbers, for
  /// several views of each sample:
  /// `images.get_batch(indices, context.for_view(1))`. View 0 is this context.
  BatchContext for_view(int64_t number) const;
  /// How often the sample in row `row` occurred earlier in the epoch.
  int64_t occurrence(int64_t row) const {
    return row < std::ssize(occurrences) ? occurrences[row] : 0;
  }

  /// Returns the random number generator of sample `index`. Call it on the
  /// context of the sample's row, so that repeated samples get different
  /// numbers: `context.of_row(row).rng(indices[row])`.
  SampleRng rng(int64_t index) const { return {seed, epoch, index}; }
};

/// A map-style dataset: samples that are accessed by index.
///
/// `get_batch` is called concurrently from several worker threads, so an
/// implementation must not keep mutable state.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  /// Returns the samples at `indices`, each in 0..size()-1, in that order. In
  /// evaluation it may leave samples out; it then lists their rows in
  /// `Batch::left_out`.
  virtual Batch get_batch(
      c10::ArrayRef<int64_t> indices,
      const BatchContext& context) const = 0;

  /// Describes a sample for error messages, with its file if it has one.
  virtual std::string describe(int64_t index) const;

  /// True if, even in training, the data can end before `size` samples, for
  /// example if it comes from a camera. A training epoch, and the fit, then end
  /// with the first batch that leaves samples out (`Batch::left_out`).
  virtual bool can_end_early() const { return false; }

  /// Returns the reason why samples of this dataset and of `other`, which has
  /// the same type, cannot be mixed in the folds of a cross-validation
  /// (`k_folds`), as a clause that also says what to do; "" if they can be
  /// mixed. `other` may be this dataset.
  virtual std::string why_no_folds(const Dataset& /*other*/) const {
    return "";
  }

  /// Called by a DataLoader at the start of an epoch that reads the samples in
  /// `order`. Returns the dataset from which to read them, or null (the
  /// default) for this dataset. StreamEpochs overrides it to start a pass over
  /// its stream.
  virtual std::shared_ptr<const Dataset> begin_epoch(
      c10::ArrayRef<int64_t> /*order*/,
      const BatchContext& /*context*/) const {
    return nullptr;
  }
};

/// A view of the samples of `source` at `indices`, in that order. An index may
/// occur several times; its samples then have different random numbers.
///
///   Subset valid(images, {40, 41, 42});
///   valid.size();   // 3
///
/// \throws c10::IndexError if an index is outside `source`.
class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> source, std::vector<int64_t> indices);
  int64_t size() const override { return std::ssize(indices_); }
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;
  bool can_end_early() const override { return source_->can_end_early(); }
  std::string describe(int64_t index) const override;
  std::shared_ptr<const Dataset> begin_epoch(
      c10::ArrayRef<int64_t> order,
      const BatchContext& context) const override;
  const Dataset& source() const { return *source_; }

 private:
  std::shared_ptr<const Dataset> source_;
  std::vector<int64_t> indices_;
  // How often each sample of the source occurs in total, and how often it
  // occurs before each position. Empty: each occurs once.
  std::vector<int64_t> times_, before_;
};

/// The concatenation of several datasets. Their tensors must have the same
/// dtypes and, except for N, the same shapes. A dataset may occur several
/// times; its samples then have different random numbers each time. This does
/// not apply to different objects with the same samples, such as two Subsets of
/// one dataset: to repeat rare samples, use one Subset that lists their indices
/// several times.
class Concat final : public Dataset {
 public:
  explicit Concat(std::vector<std::shared_ptr<const Dataset>> sources);
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;
  /// True if the data of any of the sources can end early.
  bool can_end_early() const override;
  std::string describe(int64_t index) const override;
  std::shared_ptr<const Dataset> begin_epoch(
      c10::ArrayRef<int64_t> order,
      const BatchContext& context) const override;
  const std::vector<std::shared_ptr<const Dataset>>& sources() const {
    return sources_;
  }

 private:
  std::pair<size_t, int64_t> locate(int64_t index) const;

  std::vector<std::shared_ptr<const Dataset>> sources_;
  std::vector<int64_t> ends_;  // ends_[k]: samples in the sources 0..k
  // For each source: how often it occurs in total, and how often before this
  // position.
  std::vector<int64_t> times_, before_;
};

/// A dataset of tensors in memory: sample i is row i of each tensor.
///
///   TensorDataset points({x}, {y});   // x: [1000, 2], y: [1000]
///
/// \throws c10::ValueError if there is no input tensor, if a tensor is
///         undefined or 0-dim, or if their first sizes differ.
class TensorDataset final : public Dataset {
 public:
  TensorDataset(Tensors inputs, Tensors targets);
  int64_t size() const override { return inputs_[0].size(0); }
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;

 private:
  Tensors inputs_, targets_;
};

/// Concatenates batches along their first dimension.
/// \throws c10::ValueError if the shapes or dtypes differ, naming them.
Batch collate(c10::ArrayRef<Batch> samples, const BatchContext& context = {});

}  // namespace tern
