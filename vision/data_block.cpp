#include "tern/vision/data_block.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/vision/make_bunch.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

/// An item with its labels, in training or in validation.
struct Labelled {
  const ImageItem* item;
  std::vector<std::string> labels;
};

struct Parts {
  std::vector<Labelled> train, valid;
};

Parts split_and_label(const DataBlock& block) {
  TORCH_CHECK_VALUE(
      !block.items.empty() && block.split && block.label,
      "[DataBlock] there are no items, or no splitter or labeller; expected "
      "all three.");
  const std::vector<Split> splits = block.split(block.items);
  TORCH_CHECK_VALUE(
      splits.size() == block.items.size(),
      fmt::format(
          "[DataBlock] the splitter returned {} splits for {} items; expected "
          "one per item.",
          splits.size(),
          block.items.size()));
  Parts parts;
  for (size_t i = 0; i < splits.size(); ++i) {
    const ImageItem& item = block.items[i];
    auto& part = splits[i] == Split::valid ? parts.valid : parts.train;
    part.push_back({&item, block.label(item)});
  }
  for (const auto& [part, name] :
       {std::pair{&parts.train, "training"}, {&parts.valid, "validation"}}) {
    if (part->empty()) {
      throw DataError(
          block.items[0].where(),
          fmt::format(
              "this and the {} other images all ended up in one split; "
              "expected "
              "at least one {} image. Correct the split.",
              splits.size() - 1,
              name));
    }
  }
  return parts;
}

/// The only label of an image.
const std::string& single(const Labelled& image) {
  if (image.labels.size() != 1 || image.labels[0].empty()) {
    image.item->fail(
        image.labels.size() > 1
            ? fmt::format(
                  "has {} labels; expected one. Set target to multi_category "
                  "or number.",
                  image.labels.size())
            : "has no label; expected one.");
  }
  return image.labels[0];
}

std::vector<std::string> classes_of(const std::vector<Labelled>& images) {
  std::set<std::string> names;
  for (const Labelled& image : images) {
    names.insert(image.labels.begin(), image.labels.end());
  }
  return {names.begin(), names.end()};
}

/// The numbers of the classes.
class ClassMap {
 public:
  explicit ClassMap(const std::vector<std::string>& classes)
      : classes_(classes) {
    for (size_t i = 0; i < classes.size(); ++i) {
      TORCH_CHECK_VALUE(
          numbers_.emplace(classes[i], static_cast<int64_t>(i)).second,
          fmt::format(
              "[DataBlock] the class '{}' is duplicated; expected different "
              "names.",
              classes[i]));
    }
  }

  int64_t number(const ImageItem& item, const std::string& label) const {
    const auto at = numbers_.find(label);
    if (at == numbers_.end()) {
      constexpr size_t kNamed = 20;
      const auto end =
          classes_.begin() +
          static_cast<std::ptrdiff_t>(std::min(classes_.size(), kNamed));
      item.fail(fmt::format(
          "has the label '{}', which no training image has ({}{}). "
          "Correct the label, add training images of it, or give the "
          "classes.",
          label,
          fmt::join(classes_.begin(), end, ", "),
          classes_.size() > kNamed ? ", ..." : ""));
    }
    return at->second;
  }

 private:
  const std::vector<std::string>& classes_;
  std::map<std::string, int64_t> numbers_;
};

using Images = const std::vector<Labelled>&;

std::shared_ptr<const ImageTargets> categories(
    Images images,
    const std::vector<std::string>& classes) {
  const ClassMap map(classes);
  std::vector<int64_t> labels;
  for (const Labelled& image : images) {
    labels.push_back(map.number(*image.item, single(image)));
  }
  return std::make_shared<CategoryTargets>(std::move(labels));
}

std::shared_ptr<const ImageTargets> multi_categories(
    Images images,
    const std::vector<std::string>& classes) {
  const ClassMap map(classes);
  std::vector<float> values(images.size() * classes.size());
  for (size_t i = 0; i < images.size(); ++i) {
    for (const std::string& label : images[i].labels) {
      const int64_t number = map.number(*images[i].item, label);
      values[i * classes.size() + static_cast<size_t>(number)] = 1;
    }
  }
  return std::make_shared<NumberTargets>(
      std::move(values),
      static_cast<int64_t>(classes.size()));
}

float number_of(const ImageItem& item, const std::string& text) {
  float value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    item.fail(fmt::format(
        "has the label '{}'; expected a finite number such as 1.5.",
        text));
  }
  return value;
}

/// \param width  Labels of the first image, which all must have.
std::shared_ptr<const ImageTargets> numbers(Images images, size_t width) {
  std::vector<float> values;
  for (const Labelled& image : images) {
    if (image.labels.size() != width || width == 0) {
      image.item->fail(fmt::format(
          "has {} numbers where the first image has {}; expected equally "
          "many, and at least one.",
          image.labels.size(),
          width));
    }
    for (const std::string& label : image.labels) {
      values.push_back(number_of(*image.item, label));
    }
  }
  return std::make_shared<NumberTargets>(
      std::move(values),
      width == 1 ? 0 : static_cast<int64_t>(width));
}

std::shared_ptr<const ImageTargets> masks(Images images, size_t classes) {
  std::vector<std::string> paths;
  for (const Labelled& image : images) {
    paths.push_back(single(image));
    std::error_code ignored;
    if (!fs::is_regular_file(paths.back(), ignored)) {
      image.item->fail(
          fmt::format("has the mask {}, which is no file.", paths.back()));
    }
  }
  return std::make_shared<MaskTargets>(
      std::move(paths),
      static_cast<int64_t>(classes));
}

}  // namespace

DataBunch DataBlock::bunch(const ImageDataBunchOptions& options) const {
  const Parts parts = split_and_label(*this);
  std::vector<std::string> names = classes;
  const bool has_classes =
      target == TargetKind::category || target == TargetKind::multi_category;
  if (has_classes && names.empty()) {
    names = classes_of(parts.train);
  }
  const size_t width = parts.train[0].labels.size();
  const auto targeted = [&](Images images) {
    TargetedImages part;
    for (const Labelled& image : images) {
      part.paths.push_back(image.item->path);
    }
    switch (target) {
      case TargetKind::category:
        part.targets = categories(images, names);
        break;
      case TargetKind::multi_category:
        part.targets = multi_categories(images, names);
        break;
      case TargetKind::number:
        part.targets = numbers(images, width);
        break;
      case TargetKind::mask:
        part.targets = masks(images, names.size());
        break;
    }
    return part;
  };
  TargetedImages train = targeted(parts.train);
  TargetedImages valid = targeted(parts.valid);
  return make_bunch(
      std::move(train),
      std::move(valid),
      std::move(names),
      options);
}

}  // namespace tern
