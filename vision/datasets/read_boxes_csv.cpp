#include "tern/vision/datasets/read_boxes_csv.h"

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/csv.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/datasets/image_items.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

/// Positions of the columns in the table.
struct BoxColumns {
  std::array<size_t, 4> box;
  size_t label;
};

BoxColumns columns_of(const CsvTable& table, const BoxCsv& options) {
  std::array<std::string, 4> box = options.box_columns;
  std::string label = options.label_column;
  const BoxCsv defaults;
  // parse_csv names the columns of a table without a header "0", "1" and so on.
  const bool has_header = table.columns[0] != "0";
  if (!has_header && box == defaults.box_columns &&
      label == defaults.label_column) {
    box = {"1", "2", "3", "4"};
    label = "5";
  }
  BoxColumns columns{};
  std::ranges::transform(box, columns.box.begin(), [&](const auto& name) {
    return table.column(name);
  });
  columns.label = table.column(label);
  return columns;
}

}  // namespace

BoxAnnotations read_boxes_csv(
    const fs::path& table_path,
    const fs::path& folder,
    const BoxCsv& options) {
  BoxClasses classes(options.classes, "read_boxes_csv");
  const ImageItems items = items_from_csv(
      folder,
      table_path,
      options.path_column,
      options.suffix,
      options.delimiter,
      options.header);
  const CsvTable& table = *items[0].table;
  const BoxColumns columns = columns_of(table, options);
  BadBoxCounter bad(table_path.string(), options.bad_boxes, options.sink);
  BoxAnnotations result;
  std::unordered_map<std::string, size_t> places;  // index by image path
  for (const ImageItem& item : items) {
    const auto [place, is_new] =
        places.emplace(item.path, result.images.size());
    if (is_new) {
      std::error_code ignored;
      if (options.check_files && !fs::is_regular_file(item.path, ignored)) {
        item.fail(
            "names an image that does not exist. Correct the folder or the "
            "path; check_files = false skips this check.");
      }
      AnnotatedImage& image = result.images.emplace_back();
      image.path = item.path;
      image.id = std::ssize(result.images) - 1;
    }
    const std::vector<std::string>& row = table.rows[item.row];
    const std::string& label = row[columns.label];
    const auto is_empty = [&](size_t column) {
      return trimmed(row[column]).empty();
    };
    if (std::ranges::all_of(columns.box, is_empty) && label.empty()) continue;

    bad.count_box();
    std::array<double, 4> numbers{};
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::string& cell = row[columns.box[i]];
      const std::optional<double> number = parse_number(cell);
      if (!number) {
        item.fail(
            "has {} in the column {}; expected a number, or empty cells in all "
            "box columns and in the class column, {}, for an image without "
            "objects. Correct this line of the table.",
            printable(cell),
            printable(table.columns[columns.box[i]]),
            printable(table.columns[columns.label]));
      }
      numbers[i] = *number;
    }
    const auto& [x, y, third, fourth] = numbers;
    const bool has_size = options.format == BoxFormat::xywh;
    Box box{
        .x1 = x,
        .y1 = y,
        .x2 = has_size ? x + third : third,
        .y2 = has_size ? y + fourth : fourth,
        .label = label};
    const std::string fault = box_fault(box, {});
    if (!classes.knows(label, item.where())) {
      bad.reject(
          item.where(),
          fmt::format(
              "the object has the class {}; expected one of {}",
              printable(label),
              classes.some()));
    } else if (!fault.empty()) {
      bad.reject(
          item.where(),
          fmt::format(
              "the box [{}] {}; expected {} in pixels of the image",
              fmt::join(numbers, ", "),
              fault,
              has_size ? "left edge, top edge, width and height"
                       : "left, upper, right and lower edge"));
    } else {
      result.images[place->second].objects.boxes.push_back(std::move(box));
    }
  }
  bad.finish();
  result.classes = classes.names();
  return result;
}

}  // namespace tern
