#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_loader.h"

namespace tern {

/// Which of a DataBunch's loaders is meant.
enum class Split { train, valid, test };

/// "train", "valid" or "test".
const char* to_string(Split split);

/// What a batch transform is told.
struct BatchTransformContext {
  /// Whether the batch is for training, where augmentation belongs.
  bool training = false;
  /// The type in which the model wants its floating inputs.
  torch::ScalarType dtype = torch::kFloat;
};

/// Changes a whole batch on the device of the model, before any callback sees
/// it: normalisation, and augmentation that is done per batch.
using BatchTransform =
    std::function<void(Batch& batch, const BatchTransformContext& context)>;

/// `normalize_images` on inputs[0] when that is kByte [N, H, W, C].
/// \param mean, stddev  In units of 0..1, one for each channel.
BatchTransform normalize(std::vector<double> mean, std::vector<double> stddev);

/// The data of one training: what to learn from, what to check with.
struct DataBunch {
  std::shared_ptr<DataLoader> train, valid, test;
  /// Where batches go and models live.
  torch::Device device = default_device();
  /// Names of the classes, in the order of their indices; empty when the
  /// target is not a class.
  std::vector<std::string> classes;
  /// Applied in order to every batch on `device`.
  std::vector<BatchTransform> batch_transforms;

  /// The loader of a split. \throws c10::ValueError when there is none.
  const DataLoader& loader(Split split) const;

  /// cuda:0 when there is a CUDA device, else the CPU.
  static torch::Device default_device();

  /// A bunch from data sets, training shuffled without its short last batch.
  /// \param valid, test  May be null.
  static DataBunch create(
      std::shared_ptr<const Dataset> train,
      std::shared_ptr<const Dataset> valid,
      DataLoaderOptions options = {},
      std::shared_ptr<const Dataset> test = nullptr);
};

}  // namespace tern
