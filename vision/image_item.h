#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace tern
