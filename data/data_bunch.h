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
#include "tern/data/random.h"

namespace tern {

struct ImageSize;
class SinkImpl;

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
  /// Images stay kByte, for somebody who looks at them.
  bool keeps_bytes = false;
  /// With the place of a sample in the batch, the key of its randomness: the
  /// run's seed, how many epochs came before, and the number of the batch.
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t batch = 0;

  /// The random numbers of the batch's sample number `place`.
  SampleRng rng(int64_t place) const {
    return {seed, epoch, (batch << 24) + place};
  }
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
  /// What happens to an image that is not for training, for the file that
  /// `Learner::export_model` writes. Unset: nobody can say it, as with a
  /// transform of one's own. Who changes the transforms changes this too.
  std::optional<ImagePreprocessing> preprocessing;

  /// The loader of a split. \throws c10::ValueError when there is none.
  const DataLoader& loader(Split split) const;

  /// The CUDA device of this process, if there is one, else the CPU: the one
  /// that torchrun's LOCAL_RANK names, cuda:0 without it.
  static torch::Device default_device();

  /// Shrinks every image once and reads it from memory from then on; see
  /// vision/presize.h, which defines it.
  DataBunch& presize(
      const std::filesystem::path& folder,
      ImageSize size,
      const std::shared_ptr<SinkImpl>& sink = nullptr);

  /// A bunch from data sets, training shuffled without its short last batch.
  /// \param valid, test  May be null.
  static DataBunch create(
      std::shared_ptr<const Dataset> train,
      std::shared_ptr<const Dataset> valid,
      DataLoaderOptions options = {},
      std::shared_ptr<const Dataset> test = nullptr);
};

}  // namespace tern
