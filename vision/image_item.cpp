#include "tern/vision/image_item.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace fs = std::filesystem;

void ImageItem::fail(const std::string& what) const {
  throw DataError(where(), what);
}

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

}  // namespace tern
