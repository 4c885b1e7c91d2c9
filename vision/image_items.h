#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/data/formats/csv.h"
#include "tern/vision/image_folder.h"

namespace tern {

/// An image before it is read, and the row of a table that tells of it.
struct ImageItem {
  std::string path;
  /// Null where no table was read.
  std::shared_ptr<const CsvTable> table = {};
  size_t row = 0;

  /// A cell of its row. \throws DataError if there is no such column or table.
  const std::string& cell(std::string_view column) const;
  /// The file and line, or the path, for error messages.
  std::string where() const;
  /// \throws DataError "where: what".
  [[noreturn]] void fail(const std::string& what) const;
};
using ImageItems = std::vector<ImageItem>;

/// All images under a folder, at any depth.
ImageItems items_from_folder(
    const std::filesystem::path& folder,
    const ImageFolderOptions& options = {});

/// One image for each row of a table.
/// \param folder  Where the paths in the table begin.
/// \param column  Holds the paths. Empty: the first column.
/// \param suffix  Follows each of them, such as ".jpg".
ImageItems items_from_csv(
    const std::filesystem::path& folder,
    const std::filesystem::path& table,
    const std::string& column = "",
    const std::string& suffix = "");

/// Gives the labels of an item: one class or number, several of them, or the
/// path of its mask.
using Labeller = std::function<std::vector<std::string>(const ImageItem&)>;

/// The name of the folder that the image lies in.
Labeller label_from_folder();
/// What the first group of a regular expression (ECMAScript) finds in the path.
Labeller label_from_re(const std::string& pattern);
Labeller label_from_func(std::function<std::string(const ImageItem&)> label);
/// Cells of the item's row.
/// \param delimiter  Between several labels in a cell, such as " "; empty: one.
Labeller label_from_column(
    std::vector<std::string> columns,
    const std::string& delimiter = "");

/// Says for each item where it belongs; `train` or `valid`.
using Splitter = std::function<std::vector<Split>(const ImageItems&)>;

/// Draws `valid_pct` of the items to check with, the same for the same seed.
Splitter split_at_random(double valid_pct = 0.2, uint64_t seed = 42);
/// By the folder in the path: the last of the two names in it decides.
Splitter split_by_folder(
    const std::string& train = "train",
    const std::string& valid = "valid");
/// To check with those whose file name, or end of the path, is in the list.
Splitter split_by_list(std::vector<std::string> valid);
/// To check with those for which `is_valid` holds.
Splitter split_by_func(std::function<bool(const ImageItem&)> is_valid);
/// To check with those with 1, true, valid or validation in a column; for
/// 0, false, train or nothing the item is to learn from.
Splitter split_by_column(const std::string& column);

}  // namespace tern
