#pragma once

#include <filesystem>
#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/data/dataset.h"

namespace tern {

struct IdxDatasetOptions {
  /// 1: grey as stored. 3: the same grey in three channels, for models that
  /// are made for colour.
  int64_t channels = 1;
  /// Labels must be in 0..classes-1.
  int64_t classes = 10;
};

/// Grey images and their labels from a pair of IDX files, held in memory as
/// bytes. A batch is inputs[0]: [N, H, W, channels] kByte, targets[0]: [N]
/// kLong.
class IdxDataset final : public Dataset {
 public:
  /// \param images  IDX of shape [size, H, W], plain or gzipped.
  /// \param labels  IDX of shape [size], plain or gzipped.
  /// \throws DataError if a file is damaged, its shape is another, their
  ///         counts differ, or a label is out of range; IoError;
  ///         c10::ValueError for an option out of range.
  IdxDataset(
      std::filesystem::path images,
      std::filesystem::path labels,
      const IdxDatasetOptions& options = {});

  int64_t size() const override { return labels_.size(0); }
  /// \throws c10::IndexError for an index outside 0..size()-1.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  std::string describe(int64_t index) const override;

 private:
  std::filesystem::path path_;
  int64_t channels_;
  torch::Tensor images_;  // [size, H, W] kByte
  torch::Tensor labels_;  // [size] kLong
};

/// MNIST from the folder of its four files, each plain or with `.gz`, such as
/// `untar_data(urls::mnist)` gives.
///
///   auto valid = mnist_dataset(untar_data(urls::mnist), /*train=*/false);
///   valid->size();   // 10000
///
/// \throws DataError as IdxDataset, also if a file is missing.
std::shared_ptr<const IdxDataset> mnist_dataset(
    const std::filesystem::path& folder,
    bool train,
    const IdxDatasetOptions& options = {});

/// Train and validation data of the same folder, normalised with MNIST's mean
/// and deviation, as [N, 1, 28, 28].
///
/// \param options  For both loaders; training is shuffled and leaves its short
///                 last batch out.
DataBunch mnist_data(
    const std::filesystem::path& folder,
    const DataLoaderOptions& options = {});

}  // namespace tern
