#include "tern/vision/splitters.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/vision/make_bunch.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

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
  item.fail(fmt::format(
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
  item.fail(fmt::format(
      "has '{}' in the column {}; expected 1, true or valid, or 0, false "
      "or train.",
      word,
      column));
}

}  // namespace

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

}  // namespace tern
