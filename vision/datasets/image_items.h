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

/// The path of an image and its row of a table, if any.
struct ImageItem {
  std::string path;
  /// Null if the item does not come from a table.
  std::shared_ptr<const CsvTable> table = {};
  size_t row = 0;
  /// The bytes of an image file in memory, of any format that Tern reads; `path`
  /// is then a name for labellers and error messages. Null: the file at `path`.
  std::shared_ptr<const std::vector<uint8_t>> bytes = {};

  /// Returns a cell of its row.
  /// \throws DataError if there is no such column or table.
  const std::string& cell(std::string_view column) const;
  /// Returns file and line, or the path, for error messages.
  std::string where() const;
  /// \throws DataError "where: what", with `what` of `fmt::format`.
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
/// \param column  Column with the paths; empty: the first one.
/// \param suffix  Appended to each path, such as ".jpg".
/// \param delimiter, header  See ImageCsv.
ImageItems items_from_csv(
    const std::filesystem::path& folder,
    const std::filesystem::path& table,
    const std::string& column = "",
    const std::string& suffix = "",
    char delimiter = ',',
    std::optional<bool> header = {});

/// Returns images that are in memory. Their pixels are copied.
/// \param images  Gray, BGR or BGRA with 8 or 16 bits, as OpenCV has them; alpha
///                is dropped and 16 bits are divided by 257, as for files.
/// \param names   For labellers and error messages, all different; empty:
///                "image 0" and so on.
/// \throws c10::ValueError for an image of another kind, another number of
///         names, or two that are the same.
ImageItems items_from_images(
    const std::vector<cv::Mat>& images,
    const std::vector<std::string>& names = {});
/// The same for [N, H, W] or [N, H, W, 1 or 3] kByte, RGB.
ImageItems items_from_images(
    const torch::Tensor& images,
    const std::vector<std::string>& names = {});

/// Returns the labels of an item: classes, numbers, or the path of its mask.
using Labeller = std::function<std::vector<std::string>(const ImageItem&)>;

/// The name of the image's folder.
Labeller label_from_folder();
/// The first group of a regular expression (ECMAScript) matched against the
/// path.
Labeller label_from_re(const std::string& pattern);
Labeller label_from_func(std::function<std::string(const ImageItem&)> label);
/// For `TargetKind::number`: one number for each image, or several.
Labeller label_from_func(std::function<double(const ImageItem&)> number);
Labeller label_from_func(
    std::function<std::vector<double>(const ImageItem&)> numbers);
/// The cells of the item's row in these columns.
/// \param delimiter  Separator of several labels in a cell, such as " "; empty:
///                   one label.
Labeller label_from_column(
    std::vector<std::string> columns,
    const std::string& delimiter = "");

/// Assigns each item to `train` or `valid`.
using Splitter = std::function<std::vector<Split>(const ImageItems&)>;

/// Draws a fraction `valid_pct` of `count` items for validation.
/// \throws c10::ValueError if that leaves no training or no validation items.
SplitIndices draw_split(int64_t count, double valid_pct, uint64_t seed);

/// Returns the values at some positions.
template <class T>
std::vector<T> select(
    const std::vector<T>& values,
    const std::vector<int64_t>& indices) {
  std::vector<T> chosen;
  chosen.reserve(indices.size());
  for (const int64_t index : indices) chosen.push_back(values[index]);
  return chosen;
}

/// Draws a fraction of the images as `draw_split`; items of one path, such as
/// rows of a table for each label of an image, stay together.
Splitter split_at_random(double valid_pct = 0.2, uint64_t seed = 42);
/// By the folder: the last of the two names in the path decides.
Splitter split_by_folder(
    const std::string& train = "train",
    const std::string& valid = "valid");
/// Validation items are those whose file name, or end of path, is in the list.
Splitter split_by_list(std::vector<std::string> valid);
/// Validation items are those for which `is_valid` returns true.
Splitter split_by_func(std::function<bool(const ImageItem&)> is_valid);
/// Validation items are those with 1, true, valid or validation in a column; 0,
/// false, train or an empty cell marks training items.
Splitter split_by_column(const std::string& column);

}  // namespace tern
