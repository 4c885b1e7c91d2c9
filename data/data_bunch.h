#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/data/image_preprocessing.h"
#include "tern/data/output_info.h"
#include "tern/data/support/random.h"
#include "tern/data/support/sink.h"

namespace tern {

struct ImageSize;

/// Selects a loader of a DataBunch.
enum class Split { train, valid, test };

/// Returns "train", "valid" or "test".
const char* to_string(Split split);

/// Describes the batch passed to a batch transform.
struct BatchTransformContext {
  /// True for training, where augmentation applies.
  bool training = false;
  /// The dtype of the model's floating-point inputs.
  torch::ScalarType dtype = torch::kFloat;
  /// Keeps images in kByte, for display.
  bool keeps_bytes = false;
  /// Seed of the run, and indices of the epoch and the batch. Together with the
  /// position of a sample in the batch, they seed its random numbers.
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t batch = 0;

  /// Returns the random number generator of the sample at position `place` in
  /// the batch.
  SampleRng rng(int64_t place) const {
    return {seed, epoch, (batch << 24) + place};
  }
};

/// Transforms a batch on the model's device before any callback sees it:
/// normalization and batch augmentation.
using BatchTransform =
    std::function<void(Batch& batch, const BatchTransformContext& context)>;

/// Returns a transform that applies `normalize_images` to inputs[0] if it is
/// [N, H, W, C] kByte.
/// \param mean, stddev  In units of 0..1, one per channel.
BatchTransform normalize(std::vector<double> mean, std::vector<double> stddev);

/// The data of a training run: loaders for training, validation and test.
struct DataBunch {
  std::shared_ptr<DataLoader> train, valid, test;
  /// The device of batches and models.
  torch::Device device = default_device();
  /// Names of the classes by index; empty if targets are not classes.
  std::vector<std::string> classes;
  /// What each output of the model predicts. You may change the thresholds.
  /// Outputs without an entry are described by the loss and `classes`.
  ///
  ///   data.outputs = {{.kind = TargetKind::category, .names = {"cat", "dog"}},
  ///                   {.kind = TargetKind::number, .names = {"age"}}};
  std::vector<OutputInfo> outputs;
  /// Applied in order to every batch on `device`.
  std::vector<BatchTransform> batch_transforms;
  /// Preprocessing of images at inference, which `Learner::export_model` writes
  /// into its file. Unset if unknown, as with a custom transform. Keep it
  /// consistent with the transforms.
  std::optional<ImagePreprocessing> preprocessing;

  /// Returns the loader of a split.
  /// \throws c10::ValueError if it is not set.
  const DataLoader& loader(Split split) const;

  /// Returns the CUDA device of torchrun's LOCAL_RANK, cuda:0 without it, or
  /// the CPU if there is no CUDA device. Initializes the CUDA driver, as every
  /// DataBunch does; processes forked after that cannot use a GPU.
  static torch::Device default_device();

  /// Resizes every image once and stores the results in `folder`; see
  /// vision/datasets/presize.h, which defines it.
  DataBunch& presize(
      const std::filesystem::path& folder,
      ImageSize size,
      const Sink& sink = {});

  /// Creates a DataBunch from datasets. Training data is shuffled unless
  /// `options` has a sampler, and its incomplete last batch is dropped.
  /// \param valid, test  May be null.
  static DataBunch create(
      std::shared_ptr<const Dataset> train,
      std::shared_ptr<const Dataset> valid,
      DataLoaderOptions options = {},
      std::shared_ptr<const Dataset> test = nullptr);
};

}  // namespace tern
