#include "tern/vision/data_block.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/ranges.h>

#include "tern/data/formats/text.h"
#include "tern/data/sampler.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/datasets/box_targets.h"
#include "tern/vision/datasets/images_in_memory.h"
#include "tern/vision/datasets/preprocess.h"

namespace tern {
namespace {

/// An item with its labels, boxes or points.
struct Labeled {
  const ImageItem* item;
  std::vector<std::string> labels;
  ImageBoxes boxes;
  std::vector<Point> points;
};

struct Parts {
  std::vector<Labeled> train, valid;
};

/// Returns the target type of a block, which depends on its labellers.
TargetKind kind_of(const DataBlock& block) {
  const bool has_boxes = static_cast<bool>(block.boxes);
  const bool has_points = static_cast<bool>(block.points);
  const TargetKind by_labeller = has_boxes    ? TargetKind::boxes
                                 : has_points ? TargetKind::points
                                              : block.target;
  TORCH_CHECK_VALUE(
      !(has_boxes && has_points),
      "[DataBlock] there are labellers for boxes and for points; expected only "
      "one of them.");
  const bool is_spatial =
      by_labeller == TargetKind::boxes || by_labeller == TargetKind::points;
  TORCH_CHECK_VALUE(
      !is_spatial || has_boxes || has_points,
      "[DataBlock] target is boxes or points, but there is no labeller for "
      "them; expected DataBlock::boxes or DataBlock::points.");
  TORCH_CHECK_VALUE(
      by_labeller == block.target || block.target == TargetKind::category,
      "[DataBlock] there is a labeller for boxes or points, but target is of a "
      "different kind; expected a target that matches the labeller. Leave "
      "target at its default.");
  return by_labeller;
}

/// Throws if two different images in memory have the same name, because splits
/// and folds keep items of the same name together.
void check_names_in_memory(const ImageItems& items) {
  std::map<std::string_view, const void*> images;
  for (const ImageItem& item : items) {
    if (!item.bytes) continue;
    const auto [at, is_new] = images.emplace(item.path, item.bytes.get());
    TERN_CHECK_VALUE(
        is_new || at->second == item.bytes.get(),
        "[DataBlock] two images in memory are named '{}'; expected distinct "
        "names, since a split keeps items of the same name together. Pass "
        "names to items_from_images.",
        item.path);
  }
}

/// Calls the labeller for the target type of the block.
Labeled
labeled(const DataBlock& block, const ImageItem& item, TargetKind kind) {
  Labeled image{&item, {}, {}, {}};
  if (kind == TargetKind::boxes) {
    image.boxes = block.boxes(item);
  } else if (kind == TargetKind::points) {
    image.points = block.points(item);
  } else {
    image.labels = block.label(item);
  }
  std::vector<std::string> texts = image.labels;
  for (const Box& box : image.boxes.boxes) texts.push_back(box.label);
  for (const std::string& label : texts) {
    if (kind != TargetKind::mask && !is_utf8(label)) {
      item.fail(
          "has the label {}, which is not UTF-8; save the table, or name the "
          "folder, in UTF-8.",
          printable(label));
    }
  }
  return image;
}

Parts split_and_label(const DataBlock& block, TargetKind kind) {
  check_names_in_memory(block.items);
  TORCH_CHECK_VALUE(
      !block.items.empty() && block.split && block.label,
      "[DataBlock] items, a splitter or a labeller is missing; expected all "
      "three.");
  const std::vector<Split> splits = block.split(block.items);
  TERN_CHECK_VALUE(
      splits.size() == block.items.size(),
      "[DataBlock] the splitter returned {} splits for {} items; expected "
      "one per item.",
      splits.size(),
      block.items.size());
  Parts parts;
  for (size_t i = 0; i < splits.size(); ++i) {
    auto& part = splits[i] == Split::valid ? parts.valid : parts.train;
    part.push_back(labeled(block, block.items[i], kind));
  }
  for (const auto& [part, name] :
       {std::pair{&parts.train, "training"}, {&parts.valid, "validation"}}) {
    if (part->empty()) {
      throw_data_error(
          block.items[0].where(),
          "this image and the {} others all ended up in one split; expected at "
          "least one {} image. Correct the split.",
          splits.size() - 1,
          name);
    }
  }
  return parts;
}

/// Returns the label of an image that must have exactly one.
const std::string& single(const Labeled& image) {
  if (image.labels.size() > 1) {
    image.item->fail(
        "has {} labels; expected one. Set target to multi_category or number.",
        image.labels.size());
  }
  if (image.labels.empty() || image.labels[0].empty()) {
    image.item->fail("has no label; expected one.");
  }
  return image.labels[0];
}

std::vector<std::string> classes_of(const std::vector<Labeled>& images) {
  std::set<std::string> names;
  for (const Labeled& image : images) {
    names.insert(image.labels.begin(), image.labels.end());
    for (const Box& box : image.boxes.boxes) names.insert(box.label);
  }
  return {names.begin(), names.end()};
}

using ClassNumbers = std::map<std::string, int64_t>;

ClassNumbers numbers_of(const std::vector<std::string>& classes) {
  ClassNumbers numbers;
  for (const std::string& name : classes) {
    TERN_CHECK_VALUE(
        numbers.emplace(name, std::ssize(numbers)).second,
        "[DataBlock] the class '{}' is duplicated; expected distinct names.",
        name);
  }
  return numbers;
}

int64_t class_of(
    const ClassNumbers& numbers,
    const ImageItem& item,
    const std::string& label) {
  if (const auto at = numbers.find(label); at != numbers.end()) {
    return at->second;
  }
  constexpr size_t kNamed = 20;
  item.fail(
      "has the label '{}', which no training image has ({}{}). Correct the "
      "label, add training images of it, or give the classes.",
      label,
      fmt::join(std::views::keys(numbers) | std::views::take(kNamed), ", "),
      numbers.size() > kNamed ? ", ..." : "");
}

using Images = const std::vector<Labeled>&;

torch::Tensor categories(
    Images images,
    const std::vector<std::string>& classes) {
  const ClassNumbers numbers = numbers_of(classes);
  std::vector<int64_t> labels;
  labels.reserve(images.size());
  for (const Labeled& image : images) {
    labels.push_back(class_of(numbers, *image.item, single(image)));
  }
  return torch::tensor(labels);
}

torch::Tensor multi_categories(
    Images images,
    const std::vector<std::string>& classes) {
  const ClassNumbers numbers = numbers_of(classes);
  const int64_t width = std::ssize(classes);
  torch::Tensor values =
      torch::zeros({std::ssize(images), width}, torch::kFloat);
  float* row = values.mutable_data_ptr<float>();
  for (const Labeled& image : images) {
    for (const std::string& label : image.labels) {
      row[class_of(numbers, *image.item, label)] = 1;
    }
    row += width;
  }
  return values;
}

float number_of(const ImageItem& item, const std::string& text) {
  float value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    item.fail(
        "has the label '{}'; expected a finite number such as 1.5.",
        text);
  }
  return value;
}

/// \param width  Number of labels of the first image; all images must have the
///               same number.
torch::Tensor numbers(Images images, size_t width) {
  std::vector<float> values;
  for (const Labeled& image : images) {
    if (image.labels.size() != width || width == 0) {
      image.item->fail(
          "has {} numbers, but the first image has {}; expected the same "
          "number, and at least one.",
          image.labels.size(),
          width);
    }
    for (const std::string& label : image.labels) {
      values.push_back(number_of(*image.item, label));
    }
  }
  const torch::Tensor all = torch::tensor(values, torch::kFloat);
  return width == 1 ? all : all.view({-1, static_cast<int64_t>(width)});
}

std::vector<std::string> mask_files(Images images) {
  std::vector<std::string> paths;
  for (const Labeled& image : images) {
    paths.push_back(single(image));
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(paths.back(), ignored)) {
      image.item->fail("has the mask {}, which is not a file.", paths.back());
    }
  }
  return paths;
}

std::shared_ptr<const ImageTargets> targets_of(
    Images images,
    TargetKind kind,
    const std::vector<std::string>& paths,
    const std::vector<std::string>& names,
    const Labeled& first,
    const AnnotationOptions& annotations) {
  switch (kind) {
    case TargetKind::mask:
      return std::make_shared<MaskTargets>(
          mask_files(images),
          std::ssize(names));
    case TargetKind::boxes: {
      numbers_of(names);  // checks that the names differ
      std::vector<ImageBoxes> boxes;
      boxes.reserve(images.size());
      for (const Labeled& image : images) boxes.push_back(image.boxes);
      return std::make_shared<BoxTargets>(paths, boxes, names, annotations);
    }
    case TargetKind::points: {
      std::vector<std::vector<Point>> points;
      points.reserve(images.size());
      for (const Labeled& image : images) points.push_back(image.points);
      return std::make_shared<PointTargets>(paths, points, annotations);
    }
    case TargetKind::category:
      return std::make_shared<TensorTargets>(categories(images, names));
    case TargetKind::multi_category:
      return std::make_shared<TensorTargets>(multi_categories(images, names));
    case TargetKind::number:
      return std::make_shared<TensorTargets>(
          numbers(images, first.labels.size()));
  }
  return nullptr;
}

/// Returns a sampler that draws all classes equally often.
std::shared_ptr<const Sampler> balanced(const ImageDataset& images) {
  const torch::Tensor labels = images.target_values();
  TORCH_CHECK_VALUE(
      labels.defined() && labels.scalar_type() == torch::kLong &&
          labels.numel() > 0,
      "[ImageDataBunch] balance_classes needs one class per image, but these "
      "images have other targets or no classes. Leave balance_classes off.");
  const torch::Tensor weights = torch::bincount(labels)
                                    .to(torch::kDouble)
                                    .reciprocal()
                                    .index_select(0, labels);
  const auto* first = weights.const_data_ptr<double>();
  return std::make_shared<WeightedSampler>(
      std::vector<double>(first, first + weights.numel()));
}

/// Returns the sampler of the options, or null to shuffle in every epoch.
std::shared_ptr<const Sampler> sampler_of(
    const ImageDataBunchOptions& options,
    const ImageDataset& images) {
  if (options.balance_classes) return balanced(images);
  if (!options.sampler) return nullptr;
  for (const int64_t index : options.sampler->indices(options.seed, 0)) {
    TERN_CHECK_VALUE(
        index >= 0 && index < images.size(),
        "[ImageDataBunch] the sampler returned the index {} for {} training "
        "images; expected 0 to {}. Indices count only training images, in the "
        "order of ImageDataset::paths, without the validation images.",
        index,
        images.size(),
        images.size() - 1);
  }
  return options.sampler;
}

// Compares only paths, which is fast. `report_duplicates` compares the files.
void tell_of_items_in_both(const Parts& parts, const Sink& sink) {
  std::unordered_set<std::string> train, both;
  for (const Labeled& image : parts.train) {
    if (!image.item->bytes) train.insert(image.item->path);
  }
  for (const Labeled& image : parts.valid) {
    const ImageItem& item = *image.item;
    if (!item.bytes && train.contains(item.path)) both.insert(item.path);
  }
  if (both.empty()) return;
  sink.or_terminal()->warning(fmt::format(
      "{} of the validation images are training images too, such as {}, so "
      "validation results are too optimistic. Split by image.",
      both.size(),
      *both.begin()));
}

void tell_of(const std::vector<DuplicateImage>& duplicates, const Sink& sink) {
  if (duplicates.empty()) return;
  sink.or_terminal()->warning(fmt::format(
      "{} of the validation images are training images too, such as {} = {}",
      duplicates.size(),
      duplicates[0].valid,
      duplicates[0].train));
}

}  // namespace

DataBunch DataBlock::bunch(const ImageDataBunchOptions& options) const {
  const TargetKind kind = kind_of(*this);
  const Parts parts = split_and_label(*this, kind);
  tell_of_items_in_both(parts, options.sink);
  std::vector<std::string> names = classes;
  const bool has_classes = kind == TargetKind::category ||
                           kind == TargetKind::multi_category ||
                           kind == TargetKind::boxes;
  if (has_classes && names.empty()) names = classes_of(parts.train);
  const auto targeted = [&](Images images) {
    TargetedImages part;
    ImageItems items;
    for (const Labeled& image : images) {
      part.paths.push_back(image.item->path);
      items.push_back(*image.item);
    }
    part.source = source_of(items);
    part.targets = targets_of(
        images,
        kind,
        part.paths,
        names,
        parts.train[0],
        annotations);
    return part;
  };
  TargetedImages train = targeted(parts.train);
  TargetedImages valid = targeted(parts.valid);
  OutputInfo output{.kind = kind};
  if (kind == TargetKind::number || kind == TargetKind::points) {
    std::swap(output.names, names);
  }
  return make_bunch(
      std::move(train),
      std::move(valid),
      std::move(names),
      options,
      output,
      annotations);
}

std::vector<DataBunch> k_folds(
    const DataBlock& block,
    int64_t folds,
    const ImageDataBunchOptions& options,
    const KFoldOptions& fold_options) {
  TORCH_CHECK_VALUE(
      !options.sampler,
      "[k_folds] there is a sampler, whose indices refer to the training "
      "images of one fold; expected none, since each fold has different "
      "images. Set balance_classes, or give the loader of each fold its own "
      "sampler.");
  const TargetKind kind = kind_of(block);
  TORCH_CHECK_VALUE(
      !fold_options.stratified || kind == TargetKind::category,
      "[k_folds] stratified folds need one class per image, but the block has "
      "targets of a different kind. Leave stratified off.");
  TORCH_CHECK_VALUE(
      !block.items.empty() && block.label,
      "[k_folds] items or a labeller is missing; expected both.");
  check_names_in_memory(block.items);
  std::vector<Labeled> all;
  for (const ImageItem& item : block.items) {
    all.push_back(labeled(block, item, kind));
  }
  DataBlock of_fold = block;
  const bool has_classes = kind == TargetKind::category ||
                           kind == TargetKind::multi_category ||
                           kind == TargetKind::boxes;
  if (has_classes && block.classes.empty()) of_fold.classes = classes_of(all);

  // Items with the same path are one image, which has the first item's class.
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> image_of;
  std::vector<Labeled> images;
  for (const Labeled& item : all) {
    const auto [at, is_new] =
        numbers.emplace(item.item->path, std::ssize(numbers));
    image_of.push_back(at->second);
    if (is_new) images.push_back(item);
  }
  std::vector<SplitIndices> splits;
  if (fold_options.stratified) {
    const torch::Tensor classes = categories(images, of_fold.classes);
    splits = stratified_k_fold(classes, folds, fold_options.seed);
    warn_of_rare_classes(classes, folds, of_fold.classes, fold_options.sink);
  } else {
    splits = k_fold(std::ssize(images), folds, fold_options.seed);
  }
  std::vector<DataBunch> bunches;
  for (const SplitIndices& split : splits) {
    of_fold.split = [&](const ImageItems& items) {
      std::vector<Split> result;
      for (size_t i = 0; i < items.size(); ++i) {
        const bool is_valid =
            std::ranges::binary_search(split.valid, image_of[i]);
        result.push_back(is_valid ? Split::valid : Split::train);
      }
      return result;
    };
    bunches.push_back(of_fold.bunch(options));
  }
  return bunches;
}

DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options,
    const std::optional<OutputInfo>& output,
    const AnnotationOptions& annotations) {
  const auto refer_to_upright = [](const TargetedImages& images) {
    const auto* const boxes =
        dynamic_cast<const BoxTargets*>(images.targets.get());
    return boxes && boxes->refers_to_upright();
  };
  TORCH_CHECK_VALUE(
      options.decode.exif_orientation ||
          (annotations.pixels != AnnotatedPixels::upright &&
           !refer_to_upright(train) && !refer_to_upright(valid)),
      "[ImageDataBunch] the annotations refer to upright images, but "
      "decode.exif_orientation is false, so images are not rotated; expected "
      "stored pixels, or rotated images. Set annotations.pixels to stored, or "
      "decode.exif_orientation to true; if the boxes come from read_yolo, set "
      "YoloOptions::exif_orientation to the same value.");
  for (const std::string& name : classes) {
    TERN_CHECK_VALUE(
        is_utf8(name),
        "[ImageDataBunch] the class {} has a name that is not UTF-8; expected "
        "UTF-8. Rename its folder.",
        printable(name));
  }
  TORCH_CHECK_VALUE(
      !options.sampler || !options.balance_classes,
      "[ImageDataBunch] there is a sampler, and balance_classes is set, which "
      "creates another; expected only one of them. A WeightedSampler can do "
      "both.");
  const TargetKind target = output ? output->kind : TargetKind::category;
  const Padding padding = padding_for(target, options.padding);
  const ImageDatasetOptions dataset_options = {
      .size = options.size,
      .decode = options.decode,
      .transforms = options.transforms,
      .sizing = {.resize = options.resize, .padding = padding},
      .bad_images = options.bad_images,
      .sink = options.sink};
  if (options.report_duplicates) {
    TORCH_CHECK_VALUE(
        !train.source && !valid.source,
        "[ImageDataBunch] report_duplicates compares image files, but these "
        "images are in memory or in shards; expected files. Leave "
        "report_duplicates off.");
    tell_of(duplicate_images(train.paths, valid.paths), options.sink);
  }
  const auto train_images =
      std::make_shared<ImageDataset>(std::move(train), dataset_options);
  const auto valid_images =
      std::make_shared<ImageDataset>(std::move(valid), dataset_options);

  DataBunch data;
  data.classes = std::move(classes);
  data.device = options.device.value_or(data.device);
  DataLoaderOptions loading;
  loading.seed = options.seed;
  loading.workers = options.workers;
  loading.timeout = options.timeout;
  loading.batch_size =
      options.valid_batch_size ? options.valid_batch_size : options.batch_size;
  data.valid = std::make_shared<DataLoader>(valid_images, loading);
  loading.batch_size = options.batch_size;
  loading.shuffle = loading.training = true;
  loading.sampler = sampler_of(options, *train_images);
  const int64_t samples =
      loading.sampler ? loading.sampler->size() : train_images->size();
  loading.drop_last = samples >= options.batch_size;
  data.train = std::make_shared<DataLoader>(train_images, loading);
  const ImageStats stats = options.stats.with_channels(options.decode.channels);
  data.batch_transforms.push_back(
      options.batch_transforms.empty() ? normalize(stats.mean, stats.stddev)
                                       : augment_batch(
                                             options.batch_transforms,
                                             padding,
                                             stats,
                                             target,
                                             annotations));
  if (output) data.outputs = {*output};
  data.preprocessing = describe_preprocessing(*valid_images, stats);
  return data;
}

}  // namespace tern
