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
#include "tern/vision/image_data_bunch.h"
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
};
using ImageItems = std::vector<ImageItem>;

/// Says for each item where it belongs; `train` or `valid`.
using Splitter = std::function<std::vector<Split>(const ImageItems&)>;
/// Gives the labels of an item: one class or number, several of them, or the
/// path of its mask.
using Labeller = std::function<std::vector<std::string>(const ImageItem&)>;

// ---- Items ----

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

// ---- Split ----

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

// ---- Label ----

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

// ---- Together ----

/// What labels are taken for.
enum class TargetKind {
  /// One class: [N] kLong.
  category,
  /// Any number of classes, none too: [N, classes] kFloat, 1 for those.
  multi_category,
  /// Numbers, equally many for each: [N] or [N, k] kFloat.
  number,
  /// The path of a PNG of class numbers: [N, H, W] kLong.
  mask,
};

/// How a set of images comes about, step by step: what there is, which part is
/// to check with, what it is called.
///
///   DataBlock pets{
///       .items = items_from_folder("pets/images"),
///       .split = split_at_random(0.2),
///       .label = label_from_re(R"(/([^/]+)_\d+\.jpg$)")};
///   DataBunch data = pets.bunch(
///       {.size = ImageSize{224, 224},
///        .transforms = get_transforms(),
///        .resize = ResizeMethod::crop});
struct DataBlock {
  ImageItems items = {};
  Splitter split = split_at_random();
  Labeller label = label_from_folder();
  TargetKind target = TargetKind::category;
  /// The classes in the order of their numbers; empty: those of the images to
  /// learn from, sorted. Of masks only the names; empty: any number is one.
  std::vector<std::string> classes = {};

  /// \throws DataError naming the file or the row: a label that images to learn
  ///         from do not have, that is missing or no number, a split that
  ///         leaves nothing. c10::ValueError for a bad option.
  DataBunch bunch(const ImageDataBunchOptions& options = {}) const;
};

}  // namespace tern
