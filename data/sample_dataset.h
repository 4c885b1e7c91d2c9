#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"

namespace tern {

/// One sample of a SampleDataset: tensors without a batch dimension.
struct Sample {
  Tensors inputs;
  Tensors targets = {};
  /// Index in the dataset, for error messages; set by SampleDataset.
  int64_t index = -1;
};

/// Creates a batch from one or more samples, like PyTorch's `collate_fn`. Row i
/// of the batch's inputs[0] must belong to samples[i]. The number of rows is
/// `Batch::size()`, by which losses and ranks are weighted. `context.empty`
/// provides memory for the tensors. Called from several worker threads at once.
using Collate = std::function<
    Batch(c10::ArrayRef<Sample> samples, const BatchContext& context)>;

/// Stacks samples of equal shapes: [...] becomes [N, ...].
///
/// The returned function throws a c10::ValueError that names the sample if the
/// number of tensors, a shape, a dtype or a device differs.
Collate stack_samples();

/// Where `pad_sequences` adds a mask.
enum class MaskPlace { none, input, target };

/// Describes how `pad_sequences` pads the first dimension of one tensor.
struct SequencePadding {
  /// The tensor's position among the inputs or targets of a sample.
  int64_t position = 0;
  /// Padding value; must be representable in the tensor's dtype.
  double value = 0;
  /// The length of a batch is the length of its longest sample, rounded up to a
  /// multiple of this number. Rounding reduces the number of different shapes;
  /// multiples of 8 are faster in 16 bits on a GPU.
  int64_t multiple = 1;
  /// Minimum length. Use at least 1 for a GRU, which rejects a batch with only
  /// empty samples, and at least the kernel width for a convolution.
  int64_t min_length = 1;
  /// One length for all batches, which `Learner::get_preds` needs for outputs
  /// [N, T, ...]; 0: each batch has its own length. A longer sample is an
  /// error.
  int64_t fixed_length = 0;
  /// Appends a mask to the inputs or targets of the batch: [N, T] kBool, true
  /// for the sample and false for padding.
  MaskPlace mask = MaskPlace::none;
};

/// The tensors that `pad_sequences` pads.
struct PadOptions {
  std::vector<SequencePadding> inputs = {SequencePadding{}};
  std::vector<SequencePadding> targets = {};
};

/// Pads the first dimension of some tensors, like PyTorch's
/// `pad_sequence(batch_first=True)`: [T, ...] of each sample becomes [N,
/// longest T, ...]. T may be 0. The other tensors are stacked.
///
///   pad_sequences({.inputs = {{.value = 1, .mask = MaskPlace::input}}});
///
/// \throws c10::ValueError if an option is out of range. The returned function
///         throws a c10::ValueError that names the sample if a tensor does not
///         fit.
Collate pad_sequences(PadOptions options = {});

/// Positions of the tensors that `pack_sequences` packs.
struct PackOptions {
  std::vector<int64_t> inputs = {0};
  std::vector<int64_t> targets = {};
};

/// Concatenates some tensors without padding: [T, ...] of each sample becomes
/// two tensors, the lengths [N] kLong and then the values [sum of T, ...]. T
/// may be 0. The other tensors are stacked. The lengths come first because
/// `Batch::size()` must be N. Lengths and values of several batches can be
/// concatenated, unlike offsets.
///
///   pack_sequences({.inputs = {}, .targets = {0}});   // boxes of each image
///
/// \throws c10::ValueError if a position is out of range. The returned function
///         throws a c10::ValueError that names the sample if a tensor does not
///         fit.
Collate pack_sequences(PackOptions options = {});

/// Returns the start of each sample in packed values, for EmbeddingBag's
/// `offsets`.
/// \param lengths  [N] kLong.
/// \return         [N] kLong on the device of `lengths`.
/// \throws c10::ValueError if `lengths` is not [N] kLong.
torch::Tensor offsets_of(const torch::Tensor& lengths);

/// Returns the sample index, 0 to N - 1, of each row of packed values, as in
/// the first column of YOLO's targets.
///
///   torch::cat(
///       {sample_of_row(lengths, boxes.size(0)).unsqueeze(1), boxes}, 1);
///
/// \param lengths  [N] kLong, >= 0.
/// \param rows     Sum of the lengths; passing it avoids a synchronization.
/// \return         [rows] kLong on the device of `lengths`.
/// \throws c10::ValueError if `lengths` is not [N] kLong, or, on the CPU, if
///         its sum is not `rows`.
torch::Tensor sample_of_row(const torch::Tensor& lengths, int64_t rows);

/// Base class for datasets that implement `get` for one sample. `collate` turns
/// samples into a batch. Use it for samples of different lengths.
///
///   class Texts final : public SampleDataset {
///    public:
///     explicit Texts(std::vector<torch::Tensor> texts)
///         : SampleDataset(pad_sequences()), texts_(std::move(texts)) {}
///     int64_t size() const override { return std::ssize(texts_); }
///     Sample get(int64_t index, const BatchContext&) const override {
///       return {.inputs = {texts_[index]}};
///     }
///
///    private:
///     std::vector<torch::Tensor> texts_;
///   };
class SampleDataset : public Dataset {
 public:
  /// \throws c10::ValueError if `collate` is empty.
  explicit SampleDataset(Collate collate = stack_samples());

  /// Returns the sample at `index`, 0..size()-1. Called from several worker
  /// threads at once.
  /// \param context  The sample's context: `context.rng(index)` is its random
  ///                 number generator.
  virtual Sample get(int64_t index, const BatchContext& context) const = 0;

  /// \throws c10::ValueError if `collate` returns a different number of rows.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const final;

 private:
  Collate collate_;
};

/// A SampleDataset of samples in memory: like TensorDataset, for samples of
/// different lengths.
class SampleList final : public SampleDataset {
 public:
  explicit SampleList(
      std::vector<Sample> samples,
      Collate collate = stack_samples());
  int64_t size() const override { return std::ssize(samples_); }
  Sample get(int64_t index, const BatchContext&) const override {
    return samples_.at(index);
  }

 private:
  std::vector<Sample> samples_;
};

}  // namespace tern
