#include "tern/vision/image_data_bunch.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/datasets/image_folder.h"

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
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
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
    options.sink.or_terminal()->warning(fmt::format(
        "{}: omitted {} broken links, such as {}",
        root.string(),
        images.dangling_links.size(),
        images.dangling_links.front()));
  }
  return images;
}

/// Draws a fraction `valid_pct` of the images for validation. Both parts keep
/// their order.
TrainAndValid
split_images(const ImageFolder& images, double valid_pct, uint64_t seed) {
  const auto indices = draw_split(std::ssize(images.paths), valid_pct, seed);
  const auto part = [&](const std::vector<int64_t>& chosen) {
    return ImageFolder{
        .classes = images.classes,
        .paths = select(images.paths, chosen),
        .labels = select(images.labels, chosen)};
  };
  return {part(indices.train), part(indices.valid)};
}

TrainAndValid find_images(
    const fs::path& path,
    const ImageDataBunchOptions& options) {
  if (!is_folder(path)) {
    throw_data_error(
        path.string(),
        "there is no such folder; expected a folder with the folders {} and "
        "{}, or with one folder of images per class. Check the path.",
        options.train,
        options.valid);
  }
  const fs::path train = path / options.train;
  const fs::path valid = path / options.valid;
  const bool has_train = is_folder(train);
  const bool has_valid = is_folder(valid);
  if (!options.valid_pct && has_train != has_valid) {
    throw_data_error(
        (has_train ? valid : train).string(),
        "there is no such folder, though there is {}. Set `{}` to the name of "
        "this folder (available: {}), or set valid_pct to split at random.",
        (has_train ? train : valid).string(),
        has_train ? "valid" : "train",
        folders_in(path));
  }
  if (!options.valid_pct && has_train) {
    ImageFolder train_images = scan(train, path, options);
    ImageFolder valid_images = scan(valid, path, options, train_images.classes);
    return {std::move(train_images), std::move(valid_images)};
  }
  ImageFolder images = scan(has_train ? train : path, path, options);
  if (has_train && has_valid) {
    const ImageFolder more = scan(valid, path, options, images.classes);
    std::ranges::copy(more.paths, std::back_inserter(images.paths));
    std::ranges::copy(more.labels, std::back_inserter(images.labels));
  }
  return split_images(images, options.valid_pct.value_or(0.2), options.seed);
}

Splitter random_split(const ImageDataBunchOptions& options) {
  return split_at_random(options.valid_pct.value_or(0.2), options.seed);
}

DataBlock block_of_lists(
    ImageItems items,
    const std::vector<std::string>& labels,
    const ImageDataBunchOptions& options) {
  TERN_CHECK_VALUE(
      items.size() == labels.size(),
      "[ImageDataBunch] got {} images and {} labels; expected one label per "
      "image.",
      items.size(),
      labels.size());
  auto table = std::make_shared<CsvTable>();
  table->path = "the list of labels";
  table->columns = {"label"};
  for (size_t i = 0; i < items.size(); ++i) {
    table->rows.push_back({labels[i]});
    table->lines.push_back(i + 1);
    items[i].table = table;
    items[i].row = i;
  }
  return {
      .items = std::move(items),
      .split = random_split(options),
      .label = label_from_column({"label"})};
}

}  // namespace

DataBunch ImageDataBunch::from_folder(
    const fs::path& path,
    const ImageDataBunchOptions& options) {
  TrainAndValid images = find_images(path, options);
  const auto targeted = [](ImageFolder& part) -> TargetedImages {
    return {
        std::move(part.paths),
        std::make_shared<TensorTargets>(torch::tensor(part.labels))};
  };
  return make_bunch(
      targeted(images.train),
      targeted(images.valid),
      std::move(images.train.classes),
      options);
}

DataBunch ImageDataBunch::from_csv(
    const fs::path& path,
    const ImageCsv& csv,
    const ImageDataBunchOptions& options) {
  DataBlock block{
      .items = items_from_csv(
          path / csv.folder,
          path / csv.file,
          csv.path_column,
          csv.suffix,
          csv.delimiter,
          csv.header),
      .split = csv.valid_column.empty() ? random_split(options)
                                        : split_by_column(csv.valid_column)};
  std::string label_column = csv.label_column;
  if (label_column.empty() && !block.items.empty()) {
    const CsvTable& table = *block.items[0].table;
    if (table.columns.size() < 2) {
      const std::string& text = table.columns[0];
      const bool has_others = text.find_first_of(";\t|") != text.npos;
      throw DataError(
          table.path,
          std::string(
              "has one column; expected a second one with the labels.") +
              (has_others ? " If its columns are not separated by commas, set "
                            "ImageCsv::delimiter."
                          : ""));
    }
    label_column = table.columns[1];
  }
  block.label = label_from_column({label_column}, csv.label_delimiter);
  block.target = csv.target.value_or(
      csv.label_delimiter.empty() ? TargetKind::category
                                  : TargetKind::multi_category);
  return block.bunch(options);
}

DataBunch ImageDataBunch::from_name_re(
    const fs::path& path,
    const std::string& pattern,
    const ImageDataBunchOptions& options) {
  const DataBlock block{
      .items =
          items_from_folder(path, {.links_outside = options.links_outside}),
      .split = random_split(options),
      .label = label_from_re(pattern)};
  return block.bunch(options);
}

DataBunch ImageDataBunch::from_lists(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& labels,
    const ImageDataBunchOptions& options) {
  return from_items(items_at(paths), labels, options);
}

ImageItems ImageDataBunch::items_at(const std::vector<std::string>& paths) {
  ImageItems items;
  items.reserve(paths.size());
  for (const std::string& path : paths) items.push_back({path});
  return items;
}

DataBunch ImageDataBunch::from_items(
    ImageItems items,
    const std::vector<std::string>& labels,
    const ImageDataBunchOptions& options) {
  return block_of_lists(std::move(items), labels, options).bunch(options);
}

DataBunch ImageDataBunch::from_images(
    const torch::Tensor& images,
    const torch::Tensor& labels,
    const ImageDataBunchOptions& options) {
  TERN_CHECK_VALUE(
      labels.defined() && labels.dim() == 1 && !labels.is_complex(),
      "[ImageDataBunch::from_images] labels are {}; expected [N]: whole "
      "numbers for classes, or floating-point numbers for regression.",
      shapes_of({labels}));
  const torch::Tensor numbers =
      labels.detach().to(torch::kCPU, torch::kDouble).contiguous();
  const auto* first = numbers.const_data_ptr<double>();
  return from_numbers(
      items_from_images(images),
      {first, first + numbers.numel()},
      !labels.is_floating_point(),
      options);
}

DataBunch ImageDataBunch::from_numbers(
    ImageItems items,
    const std::vector<double>& numbers,
    bool are_classes,
    const ImageDataBunchOptions& options) {
  const auto texts = [](const auto& values) {
    std::vector<std::string> labels;
    labels.reserve(values.size());
    for (const double value : values)
      labels.push_back(fmt::format("{}", value));
    return labels;
  };
  DataBlock block = block_of_lists(std::move(items), texts(numbers), options);
  if (are_classes) {
    block.classes = texts(std::set<double>(numbers.begin(), numbers.end()));
  } else {
    block.target = TargetKind::number;
  }
  return block.bunch(options);
}

}  // namespace tern
