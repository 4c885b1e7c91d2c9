#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/data/formats/csv.h"
#include "tern/data/k_folds.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/image_folder.h"

namespace cv {
class Mat;
}

namespace tern {

/// An image: its path and, if it comes from a table, its row.
struct ImageItem {
  std::string path;
  /// Null if the item does not come from a table.
  std::shared_ptr<const CsvTable> table = {};
  size_t row = 0;
  /// The bytes of an image file in memory, in any format that Tern reads;
  /// `path` is then only a name, for labellers and error messages. Null: the
  /// image is the file at `path`.
  std::shared_ptr<const std::vector<uint8_t>> bytes = {};

  /// Returns the cell in `column` of the item's row.
  /// \throws DataError if there is no such column, or if the item does not come
  ///         from a table.
  const std::string& cell(std::string_view column) const;
  /// Returns the file and line of the item's row, or the item's path, for error
  /// messages.
  std::string where() const;
  /// Throws a DataError "where: what", where `what` is formatted with
  /// `fmt::format`.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> what, Args&&... args)
      const {
    throw_data_error(where(), what, std::forward<Args>(args)...);
  }
};
using ImageItems = std::vector<ImageItem>;

/// Returns all images below a folder, at any depth.
ImageItems items_from_folder(
    const std::filesystem::path& folder,
    const ImageFolderOptions& options = {});

/// Returns one image per row of a table.
/// \param folder  Folder that the paths are relative to.
/// \param column  Column with the paths; empty: the first column.
/// \param suffix  Text that is appended to each path, such as ".jpg".
/// \param delimiter, header  See ImageCsv.
ImageItems items_from_csv(
    const std::filesystem::path& folder,
    const std::filesystem::path& table,
    const std::string& column = "",
    const std::string& suffix = "",
    char delimiter = ',',
    std::optional<bool> header = {});

/// Returns items for images in memory. Copies the pixels.
/// \param images  OpenCV images: gray, BGR or BGRA with 8 or 16 bits. As for
///                files, alpha is dropped and 16-bit values are divided by 257.
/// \param names   Unique names for labellers and error messages; empty: "image
///                0" and so on.
/// \throws c10::ValueError for an unsupported image, or if the number of names
///         is wrong or two names are the same.
ImageItems items_from_images(
    const std::vector<cv::Mat>& images,
    const std::vector<std::string>& names = {});
/// Returns items for a tensor of images. Copies the pixels.
/// \param images  [N, H, W] or [N, H, W, 1 or 3] kByte, RGB.
ImageItems items_from_images(
    const torch::Tensor& images,
    const std::vector<std::string>& names = {});

/// Returns the labels of an item: classes, numbers, or the path of its mask.
using Labeller = std::function<std::vector<std::string>(const ImageItem&)>;

/// Labels an image with the name of its folder.
Labeller label_from_folder();
/// Labels an image with the first capture group of a regular expression
/// (ECMAScript) that is matched against its path.
Labeller label_from_re(const std::string& pattern);
Labeller label_from_func(std::function<std::string(const ImageItem&)> label);
/// For `TargetKind::number`, with one or several numbers per image.
Labeller label_from_func(std::function<double(const ImageItem&)> number);
Labeller label_from_func(
    std::function<std::vector<double>(const ImageItem&)> numbers);
/// Labels an image with the cells of its row in these columns.
/// \param delimiter  Separator of multiple labels in a cell, such as " ";
///                   empty: one label.
Labeller label_from_column(
    std::vector<std::string> columns,
    const std::string& delimiter = "");

/// Assigns each item to `train` or `valid`.
using Splitter = std::function<std::vector<Split>(const ImageItems&)>;

/// Draws a fraction `valid_pct` of `count` items for validation.
/// \throws c10::ValueError if this leaves no training or no validation items.
SplitIndices draw_split(int64_t count, double valid_pct, uint64_t seed);

/// Returns the values at `indices`.
template <class T>
std::vector<T> select(
    const std::vector<T>& values,
    const std::vector<int64_t>& indices) {
  std::vector<T> chosen;
  chosen.reserve(indices.size());
  for (const int64_t index : indices) chosen.push_back(values[index]);
  return chosen;
}

/// Draws a fraction of the images for validation, see `draw_split`. Items with
/// the same path stay together, for example the rows of a table with one row
/// per label.
Splitter split_at_random(double valid_pct = 0.2, uint64_t seed = 42);
/// Splits by the names of the folders in the path. If a path contains both
/// names, the last one counts.
Splitter split_by_folder(
    const std::string& train = "train",
    const std::string& valid = "valid");
/// Uses an item for validation if its file name, or the end of its path, is in
/// the list.
Splitter split_by_list(std::vector<std::string> valid);
/// Uses an item for validation if `is_valid` returns true.
Splitter split_by_func(std::function<bool(const ImageItem&)> is_valid);
/// Uses an item for validation if its cell in a column is 1, true, valid or
/// validation, and for training if the cell is 0, false, train or empty.
Splitter split_by_column(const std::string& column);

}  // namespace tern
