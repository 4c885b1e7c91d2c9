#include "tern/vision/datasets/image_items.h"

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <regex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/sampler.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace fs = std::filesystem;

const std::string& ImageItem::cell(std::string_view column) const {
  if (!table) {
    throw_data_error(
        path,
        "has no column '{}', since it does not come from a table. Use "
        "items_from_csv.",
        column);
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
    throw_data_error(
        folder.string(),
        "has no images ({}).",
        fmt::join(image_suffixes(), ", "));
  }
  return items;
}

ImageItems items_from_csv(
    const fs::path& folder,
    const fs::path& table_path,
    const std::string& column,
    const std::string& suffix,
    char delimiter,
    std::optional<bool> header) {
  TERN_CHECK_VALUE(
      delimiter != '"' && delimiter != '\n' && delimiter != '\r' &&
          delimiter != '\0',
      "[items_from_csv] the delimiter is the character {}; expected ',', ';' "
      "or a tab.",
      static_cast<int>(delimiter));
  CsvOptions options{delimiter, header.value_or(true)};
  CsvTable read = read_csv(table_path, options);
  if (!header && column.empty()) {
    // If the first line names an image, it does not contain column names.
    std::error_code ignored;
    options.has_header =
        !fs::is_regular_file(folder / (read.columns[0] + suffix), ignored);
    if (!options.has_header) read = read_csv(table_path, options);
  }
  if (column.empty() && read.columns[0].empty()) {
    throw DataError(
        table_path.string(),
        "has a first column without a name, such as the index that pandas "
        "writes; expected the paths there. Set ImageCsv::path_column to the "
        "column of the paths, or write the table with index=False.");
  }
  const auto table = std::make_shared<const CsvTable>(std::move(read));
  const size_t at = column.empty() ? 0 : table->column(column);
  ImageItems items;
  for (size_t row = 0; row < table->rows.size(); ++row) {
    const std::string& name = table->rows[row][at];
    ImageItem item{(folder / (name + suffix)).string(), table, row};
    if (name.empty()) {
      item.fail("names no file; expected the path of an image.");
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

Labeller label_from_func(std::function<std::string(const ImageItem&)> label) {
  return [label = std::move(label)](const ImageItem& item) {
    return std::vector<std::string>{label(item)};
  };
}

Labeller label_from_func(std::function<double(const ImageItem&)> number) {
  return label_from_func([number = std::move(number)](const ImageItem& item) {
    return std::vector<double>{number(item)};
  });
}

Labeller label_from_func(
    std::function<std::vector<double>(const ImageItem&)> numbers) {
  return [numbers = std::move(numbers)](const ImageItem& item) {
    std::vector<std::string> labels;
    for (const double number : numbers(item)) {
      labels.push_back(fmt::format("{}", number));
    }
    return labels;
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
    TERN_CHECK_VALUE(
        false,
        "[label_from_re] '{}' is not a valid regular expression: {}. Expected "
        "ECMAScript syntax.",
        pattern,
        error.what());
  }
  TERN_CHECK_VALUE(
      compiled.mark_count() > 0,
      "[label_from_re] '{}' has no group; expected parentheses around the "
      "label, as in ([^/]+)_\\d+.jpg$.",
      pattern);
  return label_from_func(
      [compiled = std::move(compiled), pattern](const ImageItem& item) {
        std::smatch found;
        if (!std::regex_search(item.path, found, compiled)) {
          item.fail(
              "does not match {}, so it has no label. Correct the "
              "expression, or remove the file.",
              pattern);
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
      for (const auto label : std::views::split(cell, delimiter)) {
        if (!label.empty()) labels.emplace_back(label.begin(), label.end());
      }
    }
    return labels;
  };
}

namespace {

/// Returns true if the last folder with one of the two names is `valid`.
bool lies_in_valid(
    const ImageItem& item,
    const std::string& train,
    const std::string& valid) {
  for (fs::path folder = fs::path(item.path).parent_path();
       folder.has_relative_path();
       folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    if (name == valid || name == train) return name == valid;
  }
  item.fail(
      "is in neither of the folders {} and {}. Set the right folders, or split "
      "in a different way.",
      train,
      valid);
}

bool truth_of(const ImageItem& item, const std::string& column) {
  const std::string word = lower_case(item.cell(column));
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::ranges::count(words, word) > 0;
  };
  if (is_one_of({"1", "true", "valid", "validation"})) return true;
  if (is_one_of({"", "0", "false", "train"})) return false;
  item.fail(
      "has '{}' in the column {}; expected 1, true or valid, or 0, false "
      "or train.",
      word,
      column);
}

}  // namespace

SplitIndices draw_split(int64_t count, double valid_pct, uint64_t seed) {
  TERN_CHECK_VALUE(
      valid_pct > 0 && valid_pct < 1,
      "[ImageDataBunch] valid_pct is {}; expected a fraction between 0 and 1, "
      "such as 0.2.",
      valid_pct);
  const auto valid_count =
      static_cast<int64_t>(valid_pct * static_cast<double>(count));
  TERN_CHECK_VALUE(
      valid_count > 0 && valid_count < count,
      "[ImageDataBunch] valid_pct is {}, which for {} images leaves {} for "
      "validation; expected at least one training and one validation image.",
      valid_pct,
      count,
      valid_count);
  // Training never uses this epoch number, so the split is independent of the
  // order of the training images even though both use the same seed.
  constexpr int64_t kSplitEpoch = -1;
  const auto order = RandomSampler(count).indices(seed, kSplitEpoch);
  const auto middle = order.begin() + valid_count;
  SplitIndices split{{middle, order.end()}, {order.begin(), middle}};
  std::ranges::sort(split.train);
  std::ranges::sort(split.valid);
  return split;
}

Splitter split_at_random(double valid_pct, uint64_t seed) {
  return [=](const ImageItems& items) {
    std::unordered_map<std::string, size_t> numbers;  // index by image path
    for (const ImageItem& item : items) {
      numbers.emplace(item.path, numbers.size());
    }
    const auto drawn = draw_split(std::ssize(numbers), valid_pct, seed);
    std::vector<Split> of_images(numbers.size(), Split::train);
    for (const int64_t i : drawn.valid) of_images[i] = Split::valid;
    std::vector<Split> splits;
    for (const ImageItem& item : items) {
      splits.push_back(of_images[numbers.at(item.path)]);
    }
    return splits;
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
    const std::unordered_set<std::string> wanted(valid.begin(), valid.end());
    std::unordered_set<std::string> missing = wanted;
    std::vector<Split> splits;
    for (const ImageItem& item : items) {
      // Looks up the whole path, then the part after each slash.
      std::string end = item.path;
      while (!wanted.contains(end) && end.find('/') != end.npos) {
        end.erase(0, end.find('/') + 1);
      }
      missing.erase(end);
      splits.push_back(wanted.contains(end) ? Split::valid : Split::train);
    }
    for (const std::string& name : valid) {
      if (missing.contains(name)) {
        throw DataError(
            name,
            "is in the list of validation images, but is not in the dataset. "
            "Correct the list.");
      }
    }
    return splits;
  };
}

Splitter split_by_column(const std::string& column) {
  return split_by_func(
      [=](const ImageItem& item) { return truth_of(item, column); });
}

}  // namespace tern
