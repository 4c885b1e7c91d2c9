#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/buffer_pool.h"
#include "tern/data/random.h"

namespace tern {

/// What a data set is told about the batch that it makes.
struct BatchContext {
  /// Seed of the run and number of the epoch: with a sample's index they are
  /// the key of all its randomness.
  uint64_t seed = 0;
  int64_t epoch = 0;
  /// Whether the batch is for training, where augmentation belongs.
  bool training = false;
  /// Where batch memory is reused; may be null.
  BufferPool* buffers = nullptr;

  /// An uninitialised CPU tensor to fill, reused from an earlier batch when
  /// that is possible, pinned when there is a GPU.
  torch::Tensor empty(c10::IntArrayRef sizes, torch::ScalarType dtype) const;
  /// The random numbers of the sample at `index`.
  SampleRng rng(int64_t index) const { return {seed, epoch, index}; }
};

/// A set of samples that can be reached by index; the one virtual data set.
///
/// `get_batch` is called from several worker threads at the same time, so an
/// implementation keeps no mutable state.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  /// The samples at `indices`, each in 0..size()-1, in that order.
  virtual Batch get_batch(
      c10::ArrayRef<int64_t> indices,
      const BatchContext& context) const = 0;

  /// Names a sample in an error message: its file, where it has one.
  virtual std::string describe(int64_t index) const;
};

/// The samples of `source` at `indices`, in that order. Copies no sample.
///
///   Subset valid(images, {40, 41, 42});
///   valid.size();   // 3
///
/// \throws c10::IndexError if an index is outside `source`.
class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> source, std::vector<int64_t> indices);
  int64_t size() const override;
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;
  std::string describe(int64_t index) const override;
  const Dataset& source() const { return *source_; }

 private:
  std::shared_ptr<const Dataset> source_;
  std::vector<int64_t> indices_;
};

/// All samples of the first source, then all of the second, and so on. The
/// tensors of the sources must have equal types and, but for N, equal shapes.
class Concat final : public Dataset {
 public:
  explicit Concat(std::vector<std::shared_ptr<const Dataset>> sources);
  int64_t size() const override;
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;
  std::string describe(int64_t index) const override;
  const std::vector<std::shared_ptr<const Dataset>>& sources() const {
    return sources_;
  }

 private:
  std::pair<size_t, int64_t> locate(int64_t index) const;

  std::vector<std::shared_ptr<const Dataset>> sources_;
  std::vector<int64_t> ends_;  // ends_[k]: samples in the sources 0..k
};

/// Samples that are the rows of tensors in memory.
///
///   TensorDataset points({x}, {y});   // x: [1000, 2], y: [1000]
///
/// \throws c10::ValueError if there is no tensor, one is 0-dim, or their first
///         sizes differ.
class TensorDataset final : public Dataset {
 public:
  TensorDataset(Tensors inputs, Tensors targets);
  int64_t size() const override;
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override;

 private:
  Tensors inputs_, targets_;
};

/// Glues batches of single samples together along their first dimension.
/// \throws c10::ValueError naming the shapes that do not fit together.
Batch collate(c10::ArrayRef<Batch> samples, const BatchContext& context = {});

}  // namespace tern
