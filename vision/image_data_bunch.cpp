#include "tern/vision/image_data_bunch.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/message.h"
#include "tern/data/sampler.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_folder.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

struct TrainAndValid {
  ImageFolder train, valid;
};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string folders_in(const fs::path& path) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_directory()) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

ImageFolder scan(
    const fs::path& root,
    const fs::path& boundary,
    const ImageDataBunchOptions& options,
    std::vector<std::string> classes = {}) {
  ImageFolder images = scan_image_folder(
      root,
      {.classes = std::move(classes),
       .allow_empty = options.allow_empty,
       .links_outside = options.links_outside,
       .boundary = boundary});
  if (!images.dangling_links.empty()) {
    message(fmt::format(
        "{}: left out {} links that lead nowhere, such as {}",
        root.string(),
        images.dangling_links.size(),
        images.dangling_links.front()));
  }
  return images;
}

void append(ImageFolder& images, const ImageFolder& more) {
  images.paths.insert(images.paths.end(), more.paths.begin(), more.paths.end());
  images.labels.insert(
      images.labels.end(),
      more.labels.begin(),
      more.labels.end());
}

/// Draws `valid_pct` of the images for validation; both parts stay in order.
TrainAndValid
split_at_random(const ImageFolder& images, double valid_pct, uint64_t seed) {
  TORCH_CHECK_VALUE(
      valid_pct > 0 && valid_pct < 1,
      fmt::format(
          "[ImageDataBunch] valid_pct is {}; expected a share between 0 and 1, "
          "such as 0.2.",
          valid_pct));
  const auto count = static_cast<int64_t>(images.paths.size());
  const auto valid_count =
      static_cast<int64_t>(valid_pct * static_cast<double>(count));
  TORCH_CHECK_VALUE(
      valid_count > 0 && valid_count < count,
      fmt::format(
          "[ImageDataBunch] valid_pct is {}, which of {} images leaves {} to "
          "check with; expected at least one to check with and one to learn "
          "from.",
          valid_pct,
          count,
          valid_count));
  // An epoch that no training has: the split and the order of the training
  // images are then unrelated, though their seed is one.
  constexpr int64_t kSplitEpoch = -1;
  std::vector<bool> is_valid(images.paths.size());
  const std::vector<int64_t> order =
      RandomSampler(count).indices(seed, kSplitEpoch);
  for (int64_t i = 0; i < valid_count; ++i) {
    is_valid[order[i]] = true;
  }
  TrainAndValid parts;
  parts.train.classes = parts.valid.classes = images.classes;
  for (size_t i = 0; i < images.paths.size(); ++i) {
    ImageFolder& part = is_valid[i] ? parts.valid : parts.train;
    part.paths.push_back(images.paths[i]);
    part.labels.push_back(images.labels[i]);
  }
  return parts;
}

TrainAndValid find_images(
    const fs::path& path,
    const ImageDataBunchOptions& options) {
  if (!is_folder(path)) {
    throw DataError(
        path.string(),
        fmt::format(
            "there is no such folder; expected one with the folders {} and {}, "
            "or with a folder of images for each class. Check the path.",
            options.train,
            options.valid));
  }
  const fs::path train = path / options.train;
  const fs::path valid = path / options.valid;
  const bool has_train = is_folder(train);
  const bool has_valid = is_folder(valid);
  if (!options.valid_pct && has_train != has_valid) {
    throw DataError(
        (has_train ? valid : train).string(),
        fmt::format(
            "there is no such folder, though there is {}. Set `{}` to the name "
            "of the folder that is meant (there are: {}), or valid_pct to "
            "split "
            "at random.",
            (has_train ? train : valid).string(),
            has_train ? "valid" : "train",
            folders_in(path)));
  }
  if (!options.valid_pct && has_train) {
    ImageFolder train_images = scan(train, path, options);
    ImageFolder valid_images = scan(valid, path, options, train_images.classes);
    return {std::move(train_images), std::move(valid_images)};
  }
  ImageFolder images = scan(has_train ? train : path, path, options);
  if (has_train && has_valid) {
    append(images, scan(valid, path, options, images.classes));
  }
  return split_at_random(images, options.valid_pct.value_or(0.2), options.seed);
}

}  // namespace

DataBunch ImageDataBunch::from_folder(
    const fs::path& path,
    const ImageDataBunchOptions& options) {
  TrainAndValid images = find_images(path, options);
  const ImageDatasetOptions dataset_options = {
      .size = options.size,
      .decode = options.decode};
  const auto train = std::make_shared<ImageDataset>(
      std::move(images.train.paths),
      std::move(images.train.labels),
      dataset_options);
  const auto valid = std::make_shared<ImageDataset>(
      std::move(images.valid.paths),
      std::move(images.valid.labels),
      dataset_options);

  DataBunch data;
  data.classes = std::move(images.train.classes);
  data.device = options.device.value_or(data.device);
  DataLoaderOptions loading;
  loading.seed = options.seed;
  loading.workers = options.workers;
  loading.batch_size = options.valid_batch_size != 0 ? options.valid_batch_size
                                                     : options.batch_size;
  data.valid = std::make_shared<DataLoader>(valid, loading);
  loading.batch_size = options.batch_size;
  loading.shuffle = loading.training = true;
  loading.drop_last = train->size() >= options.batch_size;
  data.train = std::make_shared<DataLoader>(train, loading);
  const ImageStats stats = options.stats.with_channels(options.decode.channels);
  data.batch_transforms = {normalize(stats.mean, stats.stddev)};
  return data;
}

}  // namespace tern
