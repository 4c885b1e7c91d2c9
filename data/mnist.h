#pragma once

#include <filesystem>
#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/data/dataset.h"

namespace tern {

/// Grayscale images and labels from a pair of IDX files, held in memory. A
/// batch has inputs[0]: [N, H, W, 1] kByte and targets[0]: [N] kLong.
class IdxDataset final : public Dataset {
 public:
  /// \param images  IDX of shape [size, H, W], plain or gzipped.
  /// \param labels  IDX of shape [size], plain or gzipped.
  /// \param classes  Labels must be in 0..classes-1.
  /// \throws DataError if a file is damaged or has a different shape, if the
  ///         counts differ, or if a label is out of range; IoError if a file
  ///         cannot be read.
  IdxDataset(
      std::filesystem::path images,
      const std::filesystem::path& labels,
      int64_t classes = 10);

  int64_t size() const override { return rows_->size(); }
  /// \throws c10::IndexError for an index outside 0..size()-1.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  std::string describe(int64_t index) const override;

 private:
  std::filesystem::path path_;
  std::unique_ptr<const TensorDataset> rows_;
};

/// Reads MNIST from the folder that contains its four files, plain or `.gz`,
/// such as the folder that `untar_data(urls::mnist)` returns.
///
///   auto valid = mnist_dataset(untar_data(urls::mnist), /*train=*/false);
///   valid->size();   // 10000
///
/// \throws the errors of IdxDataset, and DataError if a file is missing.
std::shared_ptr<const IdxDataset> mnist_dataset(
    const std::filesystem::path& folder,
    bool train);

/// Returns MNIST's training and validation data from the folder that
/// `mnist_dataset` reads. Inputs are [N, 1, 28, 28], normalized with MNIST's
/// mean and standard deviation.
///
/// \param options  For both loaders; training data is shuffled and its
///                 incomplete last batch dropped.
DataBunch mnist_data(
    const std::filesystem::path& folder,
    const DataLoaderOptions& options = {});

}  // namespace tern
