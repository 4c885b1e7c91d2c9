#include "tern/vision/labellers.h"

#include <filesystem>
#include <regex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace fs = std::filesystem;

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
          item.fail(fmt::format(
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

}  // namespace tern
