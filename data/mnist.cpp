#include "tern/data/mnist.h"

#include <algorithm>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/idx.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

IdxFile read_shape(const fs::path& path, size_t rank, const char* shape) {
  IdxFile file = read_idx(path);
  if (file.array.dims.size() != rank) {
    throw DataError(
        path,
        fmt::format(
            "has the shape [{}]; expected {}.",
            fmt::join(file.array.dims, ", "),
            shape));
  }
  return file;
}

// Returns the values as a tensor that keeps the bytes of the file alive.
torch::Tensor as_tensor(IdxFile file) {
  auto held = std::make_shared<IdxFile>(std::move(file));
  return torch::from_blob(
      const_cast<uint8_t*>(held->array.values.data()),
      held->array.dims,
      [held](void*) {},
      torch::kByte);
}

fs::path find_file(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const fs::path path = folder / (name + suffix);
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  throw DataError(
      folder,
      "has neither " + name + " nor " + name +
          ".gz; expected the four files of MNIST, as untar_data(urls::mnist) "
          "downloads them.");
}

}  // namespace

IdxDataset::IdxDataset(fs::path images, const fs::path& labels, int64_t classes)
    : path_(std::move(images)) {
  const IdxFile label_file = read_shape(labels, 1, "[size]");
  IdxFile image_file = read_shape(path_, 3, "[size, height, width]");
  const auto& dims = image_file.array.dims;
  if (dims[0] != label_file.array.dims[0]) {
    throw DataError(
        path_,
        fmt::format(
            "has {} images, but {} has {} labels; expected the same number. "
            "Use two files that belong together.",
            dims[0],
            labels.string(),
            label_file.array.dims[0]));
  }
  if (dims[0] == 0 || dims[1] == 0 || dims[2] == 0) {
    throw DataError(
        path_,
        fmt::format(
            "has the shape [{}]; expected images with pixels.",
            fmt::join(dims, ", ")));
  }

  const auto values = label_file.array.values;
  const auto bad = std::find_if(values.begin(), values.end(), [&](uint8_t v) {
    return v >= classes;
  });
  if (bad != values.end()) {
    throw DataError(
        labels,
        fmt::format(
            "has the label {} at index {}; expected 0 to {}.",
            *bad,
            bad - values.begin(),
            classes - 1));
  }
  torch::Tensor targets = torch::empty({dims[0]}, torch::kLong);
  std::copy(values.begin(), values.end(), targets.mutable_data_ptr<int64_t>());
  rows_ = std::make_unique<TensorDataset>(
      Tensors{as_tensor(std::move(image_file)).unsqueeze(3)},
      Tensors{std::move(targets)});
}

Batch IdxDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(
        index >= 0 && index < size(),
        "[IdxDataset] index is ",
        index,
        "; expected 0..",
        size() - 1,
        ".");
  }
  return rows_->get_batch(indices, context);
}

std::string IdxDataset::describe(int64_t index) const {
  return fmt::format("{}, image {}", path_.string(), index);
}

std::shared_ptr<const IdxDataset> mnist_dataset(
    const fs::path& folder,
    bool train) {
  const std::string part = train ? "train" : "t10k";
  // Searched one after the other, so that the error names the first missing
  // file.
  const fs::path images = find_file(folder, part + "-images-idx3-ubyte");
  const fs::path labels = find_file(folder, part + "-labels-idx1-ubyte");
  return std::make_shared<IdxDataset>(images, labels);
}

DataBunch mnist_data(
    const std::filesystem::path& folder,
    const DataLoaderOptions& options) {
  DataBunch data = DataBunch::create(
      mnist_dataset(folder, /*train=*/true),
      mnist_dataset(folder, /*train=*/false),
      options);
  for (int digit = 0; digit < 10; ++digit) {
    data.classes.push_back(std::to_string(digit));
  }
  data.batch_transforms = {normalize({0.1307}, {0.3081})};
  return data;
}

}  // namespace tern
