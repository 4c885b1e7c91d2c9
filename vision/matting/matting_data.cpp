#include "tern/vision/matting/matting_data.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tern/data/formats/error.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

bool is_split(const fs::path& folder) {
  return fs::is_directory(folder / "train") &&
         fs::is_directory(folder / "valid");
}

/// Those to learn from and those to check with.
std::pair<MattingFiles, MattingFiles> find_both(
    const fs::path& pairs,
    const fs::path& backgrounds,
    const MattingDataOptions& options) {
  if (is_split(pairs) != is_split(backgrounds)) {
    const fs::path& whole = is_split(pairs) ? backgrounds : pairs;
    throw DataError(
        whole.string(),
        fmt::format(
            "has no folders train and valid, and {} has; expected them in both "
            "or in neither.",
            (is_split(pairs) ? pairs : backgrounds).string()));
  }
  if (!is_split(pairs)) {
    return split_matting_files(
        find_matting_files(pairs, backgrounds),
        options.valid_pct,
        options.seed);
  }
  const auto side = [&](const char* name) {
    return find_matting_files(pairs / name, backgrounds / name);
  };
  return {side("train"), side("valid")};
}

/// At most `count` samples, evenly spread.
std::shared_ptr<const Dataset> some_of(
    std::shared_ptr<const Dataset> dataset,
    int64_t count) {
  const int64_t size = dataset->size();
  if (count == 0 || count >= size) return dataset;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

}  // namespace

DataBunch matting_data(
    const fs::path& pairs,
    const fs::path& backgrounds,
    const MattingDataOptions& options) {
  TORCH_CHECK_VALUE(
      options.valid_samples >= 0,
      fmt::format(
          "[matting_data] valid_samples is {}; expected 0, for all, or more.",
          options.valid_samples));
  auto [train, valid] = find_both(pairs, backgrounds, options);
  DataBunch data = DataBunch::create(
      std::make_shared<MattingDataset>(std::move(train), options.dataset),
      some_of(
          std::make_shared<MattingDataset>(std::move(valid), options.dataset),
          options.valid_samples),
      {.batch_size = options.batch_size,
       .seed = options.seed,
       .workers = options.workers});
  data.device = options.device.value_or(data.device);
  data.batch_transforms = {matting_augment(options.augment)};
  return data;
}

}  // namespace tern
