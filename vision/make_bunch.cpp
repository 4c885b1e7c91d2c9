#include "tern/vision/make_bunch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tern/data/error_text.h"
#include "tern/data/sampler.h"
#include "tern/vision/decode/bad_images.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/predict/preprocess.h"
#include "tern/vision/transforms/augment_batch.h"

namespace tern {

namespace {

/// Every class comes equally often.
std::shared_ptr<const Sampler> balanced(const ImageDataset& images) {
  const std::vector<int64_t>& labels = images.labels();
  TORCH_CHECK_VALUE(
      !labels.empty(),
      "[ImageDataBunch] balance_classes needs one class for each image; these "
      "have other targets, or there is none. Leave it off.");
  std::vector<double> counts(
      static_cast<size_t>(*std::max_element(labels.begin(), labels.end())) + 1);
  for (const int64_t label : labels) {
    ++counts[static_cast<size_t>(label)];
  }
  std::vector<double> weights;
  for (const int64_t label : labels) {
    weights.push_back(1 / counts[static_cast<size_t>(label)]);
  }
  return std::make_shared<WeightedSampler>(weights);
}

void tell_of(const std::vector<DuplicateImage>& duplicates) {
  if (duplicates.empty()) return;
  message(fmt::format(
      "{} of the validation images are training images too, such as {} = {}",
      duplicates.size(),
      duplicates[0].valid,
      duplicates[0].train));
}

}  // namespace

std::vector<Split> draw_split(int64_t count, double valid_pct, uint64_t seed) {
  TORCH_CHECK_VALUE(
      valid_pct > 0 && valid_pct < 1,
      fmt::format(
          "[ImageDataBunch] valid_pct is {}; expected a share between 0 and 1, "
          "such as 0.2.",
          valid_pct));
  const auto valid_count =
      static_cast<int64_t>(valid_pct * static_cast<double>(count));
  TORCH_CHECK_VALUE(
      valid_count > 0 && valid_count < count,
      fmt::format(
          "[ImageDataBunch] valid_pct is {}, which of {} images leaves {} for "
          "validation; expected at least one training and one validation "
          "image.",
          valid_pct,
          count,
          valid_count));
  // An epoch that no training has: the split and the order of the training
  // images are then unrelated, though their seed is one.
  constexpr int64_t kSplitEpoch = -1;
  std::vector<Split> splits(static_cast<size_t>(count), Split::train);
  const std::vector<int64_t> order =
      RandomSampler(count).indices(seed, kSplitEpoch);
  for (int64_t i = 0; i < valid_count; ++i) {
    splits[static_cast<size_t>(order[i])] = Split::valid;
  }
  return splits;
}

DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options) {
  const ImageDatasetOptions dataset_options = {
      .size = options.size,
      .decode = options.decode,
      .transforms = options.transforms,
      .sizing = {.resize = options.resize, .padding = options.padding},
      .bad_images = options.bad_images};
  if (options.report_duplicates) {
    tell_of(duplicate_images(train.paths, valid.paths));
  }
  const auto train_images = ImageDataset::with_targets(
      std::move(train.paths),
      std::move(train.targets),
      dataset_options,
      std::move(train.source));
  const auto valid_images = ImageDataset::with_targets(
      std::move(valid.paths),
      std::move(valid.targets),
      dataset_options,
      std::move(valid.source));

  DataBunch data;
  data.classes = std::move(classes);
  data.device = options.device.value_or(data.device);
  DataLoaderOptions loading;
  loading.seed = options.seed;
  loading.workers = options.workers;
  loading.timeout = options.timeout;
  loading.batch_size = options.valid_batch_size != 0 ? options.valid_batch_size
                                                     : options.batch_size;
  data.valid = std::make_shared<DataLoader>(valid_images, loading);
  loading.batch_size = options.batch_size;
  loading.shuffle = loading.training = true;
  loading.drop_last = train_images->size() >= options.batch_size;
  if (options.balance_classes) {
    loading.sampler = balanced(*train_images);
  }
  data.train = std::make_shared<DataLoader>(train_images, loading);
  const ImageStats stats = options.stats.with_channels(options.decode.channels);
  data.batch_transforms.push_back(
      options.batch_transforms.empty()
          ? normalize(stats.mean, stats.stddev)
          : augment_batch(options.batch_transforms, options.padding, stats));
  data.preprocessing = describe_preprocessing(*valid_images, stats);
  return data;
}

}  // namespace tern
