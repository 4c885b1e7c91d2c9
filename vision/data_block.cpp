#include "tern/vision/data_block.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <regex>
#include <set>
#include <unordered_set>
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

[[noreturn]] void fail(const ImageItem& item, const std::string& what) {
  throw DataError(item.where(), what);
}

Parts split_and_label(const DataBlock& block) {
  TORCH_CHECK_VALUE(
      !block.items.empty() && block.split && block.label,
      "[DataBlock] there are no items, or no splitter or labeller; expected "
      "all three.");
  const std::vector<Split> splits = block.split(block.items);
  TORCH_CHECK_VALUE(
      splits.size() == block.items.size(),
      fmt::format(
          "[DataBlock] the splitter gave {} answers for {} items; expected one "
          "for each.",
          splits.size(),
          block.items.size()));
  Parts parts;
  for (size_t i = 0; i < splits.size(); ++i) {
    const ImageItem& item = block.items[i];
    auto& part = splits[i] == Split::valid ? parts.valid : parts.train;
    part.push_back({&item, block.label(item)});
  }
  for (const auto& [part, name] :
       {std::pair{&parts.train, "learn from"}, {&parts.valid, "check with"}}) {
    if (part->empty()) {
      throw DataError(
          block.items[0].where(),
          fmt::format(
              "this and the {} other images are all split to one side; "
              "expected at least one to {}. Correct the split.",
              splits.size() - 1,
              name));
    }
  }
  return parts;
}

/// The only label of an image.
const std::string& single(const Labelled& image) {
  if (image.labels.size() != 1 || image.labels[0].empty()) {
    fail(
        *image.item,
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
              "[DataBlock] the class '{}' is there twice; expected different "
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
      fail(
          item,
          fmt::format(
              "has the label '{}', which no image to learn from has ({}{}). "
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
    fail(
        item,
        fmt::format(
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
      fail(
          *image.item,
          fmt::format(
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
      fail(
          *image.item,
          fmt::format("has the mask {}, which is no file.", paths.back()));
    }
  }
  return std::make_shared<MaskTargets>(
      std::move(paths),
      static_cast<int64_t>(classes));
}

/// \return  Whether the last folder of that name comes after the other's.
bool lies_in_valid(
    const ImageItem& item,
    const std::string& train,
    const std::string& valid) {
  const fs::path folder = fs::path(item.path).parent_path();
  std::vector<std::string> names;
  for (const fs::path& part : folder) {
    names.push_back(part.string());
  }
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (*name == valid || *name == train) {
      return *name == valid;
    }
  }
  fail(
      item,
      fmt::format(
          "lies in neither of the folders {} and {}. Name the folders that "
          "are meant, or split in another way.",
          train,
          valid));
}

bool truth_of(const ImageItem& item, const std::string& column) {
  std::string word = item.cell(column);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a')
                                : static_cast<char>(c);
  });
  if (word == "1" || word == "true" || word == "valid" ||
      word == "validation") {
    return true;
  }
  if (word.empty() || word == "0" || word == "false" || word == "train") {
    return false;
  }
  fail(
      item,
      fmt::format(
          "has '{}' in the column {}; expected 1, true or valid, or 0, false "
          "or train.",
          word,
          column));
}

}  // namespace

const std::string& ImageItem::cell(std::string_view column) const {
  if (!table) {
    throw DataError(
        path,
        fmt::format(
            "has no column '{}': it did not come from a table. Use "
            "items_from_csv.",
            column));
  }
  return table->rows.at(row).at(table->column(column));
}

std::string ImageItem::where() const {
  return table ? fmt::format(
                     "{}:{} ({})",
                     table->path,
                     table->lines.at(row),
                     path)
               : path;
}

ImageItems items_from_folder(
    const fs::path& folder,
    const ImageFolderOptions& options) {
  ImageItems items;
  for (std::string& path : find_image_files(folder, options)) {
    items.push_back({std::move(path)});
  }
  if (items.empty()) {
    throw DataError(
        folder.string(),
        fmt::format("has no images ({}).", fmt::join(options.suffixes, ", ")));
  }
  return items;
}

ImageItems items_from_csv(
    const fs::path& folder,
    const fs::path& table_path,
    const std::string& column,
    const std::string& suffix) {
  const auto table = std::make_shared<const CsvTable>(read_csv(table_path));
  const size_t at = column.empty() ? 0 : table->column(column);
  ImageItems items;
  for (size_t row = 0; row < table->rows.size(); ++row) {
    const std::string& name = table->rows[row][at];
    ImageItem item{(folder / (name + suffix)).string(), table, row};
    if (name.empty()) {
      fail(item, "names no file; expected the path of an image.");
    }
    items.push_back(std::move(item));
  }
  if (items.empty()) {
    throw DataError(
        table_path.string(),
        "has no rows; expected one for each image.");
  }
  return items;
}

Splitter split_at_random(double valid_pct, uint64_t seed) {
  return [=](const ImageItems& items) {
    return draw_split(static_cast<int64_t>(items.size()), valid_pct, seed);
  };
}

Splitter split_by_func(std::function<bool(const ImageItem&)> is_valid) {
  return [is_valid = std::move(is_valid)](const ImageItems& items) {
    std::vector<Split> splits;
    for (const ImageItem& item : items) {
      splits.push_back(is_valid(item) ? Split::valid : Split::train);
    }
    return splits;
  };
}

Splitter split_by_folder(const std::string& train, const std::string& valid) {
  return split_by_func(
      [=](const ImageItem& item) { return lies_in_valid(item, train, valid); });
}

Splitter split_by_list(std::vector<std::string> valid) {
  return [valid = std::move(valid)](const ImageItems& items) {
    std::unordered_set<std::string> wanted(valid.begin(), valid.end());
    std::unordered_set<std::string> found;
    std::vector<Split> splits;
    for (const ImageItem& item : items) {
      // The path, and what follows each of its slashes.
      bool is_valid = false;
      for (size_t at = 0; at != std::string::npos && !is_valid;) {
        const std::string end = item.path.substr(at);
        is_valid = wanted.contains(end);
        if (is_valid) {
          found.insert(end);
        }
        at = item.path.find('/', at);
        at += at == std::string::npos ? 0 : 1;
      }
      splits.push_back(is_valid ? Split::valid : Split::train);
    }
    for (const std::string& name : valid) {
      if (!found.contains(name)) {
        throw DataError(
            name,
            "is in the list of images to check with, but is none of the "
            "images. Correct the list.");
      }
    }
    return splits;
  };
}

Splitter split_by_column(const std::string& column) {
  return split_by_func(
      [=](const ImageItem& item) { return truth_of(item, column); });
}

Labeller label_from_func(std::function<std::string(const ImageItem&)> label) {
  return [label = std::move(label)](const ImageItem& item) {
    return std::vector<std::string>{label(item)};
  };
}

Labeller label_from_folder() {
  return label_from_func([](const ImageItem& item) {
    return fs::path(item.path).parent_path().filename().string();
  });
}

Labeller label_from_re(const std::string& pattern) {
  std::regex compiled;
  try {
    compiled = std::regex(pattern);
  } catch (const std::regex_error& error) {
    TORCH_CHECK_VALUE(
        false,
        fmt::format(
            "[label_from_re] '{}' is no regular expression: {}. Expected one "
            "in ECMAScript's grammar.",
            pattern,
            error.what()));
  }
  TORCH_CHECK_VALUE(
      compiled.mark_count() > 0,
      fmt::format(
          "[label_from_re] '{}' has no group; expected parentheses around the "
          "label, as in ([^/]+)_\\d+.jpg$.",
          pattern));
  return label_from_func(
      [compiled = std::move(compiled), pattern](const ImageItem& item) {
        std::smatch found;
        if (!std::regex_search(item.path, found, compiled)) {
          fail(
              item,
              fmt::format(
                  "does not match {}, so it has no label. Correct the "
                  "expression, or remove the file.",
                  pattern));
        }
        return found[1].str();
      });
}

Labeller label_from_column(
    std::vector<std::string> columns,
    const std::string& delimiter) {
  return [columns = std::move(columns), delimiter](const ImageItem& item) {
    std::vector<std::string> labels;
    for (const std::string& column : columns) {
      const std::string& cell = item.cell(column);
      if (delimiter.empty()) {
        labels.push_back(cell);
        continue;
      }
      for (size_t begin = 0; begin <= cell.size();) {
        const size_t end = std::min(cell.find(delimiter, begin), cell.size());
        if (end > begin) {
          labels.push_back(cell.substr(begin, end - begin));
        }
        begin = end + delimiter.size();
      }
    }
    return labels;
  };
}

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
