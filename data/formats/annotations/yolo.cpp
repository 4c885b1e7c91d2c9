#include "tern/data/formats/annotations/yolo.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

[[noreturn]] void
fail(const std::string& path, size_t line, const std::string& what) {
  throw DataError(
      path + ":" + std::to_string(line),
      what + ". Correct this line of the file.");
}

/// Removes the next line from `text` and returns it.
std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

void read_numbers(
    std::string_view line,
    const std::string& path,
    size_t number,
    std::vector<double>& values) {
  values.clear();
  for (line = trimmed(line); !line.empty(); line = trimmed(line)) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    const std::optional<double> value = parse_number(word);
    if (!value) fail(path, number, printable(word) + " is not a number");
    values.push_back(*value);
    line.remove_prefix(word.size());
  }
}

}  // namespace

std::vector<YoloObject> parse_yolo(
    std::span<const uint8_t> bytes,
    const std::string& path,
    bool polygons) {
  std::vector<YoloObject> objects;
  std::vector<double> values;
  std::string_view text = as_text(bytes);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    read_numbers(line, path, number, values);
    if (values.empty()) continue;
    const bool is_polygon = values.size() >= 7 && values.size() % 2 == 1;
    if (values.size() != 5 && !(polygons && is_polygon)) {
      fail(
          path,
          number,
          "the line has " + std::to_string(values.size()) +
              " numbers; expected five: class, center and size of the box" +
              (is_polygon && !polygons
                   ? ", or for a segmentation dataset the option polygons"
               : values.size() == 6 ? "; a sixth is the score of a prediction"
                                    : ""));
    }
    // Some tools write 0.000000 as the class.
    if (values[0] != std::trunc(values[0]) || !(std::abs(values[0]) < 1e9)) {
      fail(
          path,
          number,
          "the class is " +
              printable(trimmed(line).substr(
                  0,
                  trimmed(line).find_first_of(" \t\r"))) +
              "; expected a whole number");
    }
    YoloObject object;
    object.label = static_cast<int64_t>(values[0]);
    object.line = number;
    if (values.size() == 5) {
      object.cx = values[1];
      object.cy = values[2];
      object.width = values[3];
      object.height = values[4];
    } else {
      double left = values[1], right = left, top = values[2], bottom = top;
      for (size_t i = 3; i < values.size(); i += 2) {
        left = std::min(left, values[i]);
        right = std::max(right, values[i]);
        top = std::min(top, values[i + 1]);
        bottom = std::max(bottom, values[i + 1]);
      }
      object.cx = (left + right) / 2;
      object.cy = (top + bottom) / 2;
      object.width = right - left;
      object.height = bottom - top;
      for (const double value : values) {
        if (!std::isfinite(value)) object.cx = value;  // the caller checks it
      }
    }
    objects.push_back(object);
  }
  return objects;
}

std::vector<std::string> parse_names(
    std::span<const uint8_t> bytes,
    const std::string& path,
    const std::string& what) {
  std::vector<std::string> names;
  std::unordered_map<std::string_view, size_t> lines;
  std::string_view text = as_text(bytes);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view name = trimmed(next_line(text));
    if (name.empty()) {
      fail(path, number, "the line is empty; expected the name of a " + what);
    }
    if (!is_utf8(name) || name.find('\0') != name.npos) {
      fail(path, number, printable(name) + " is not UTF-8 text");
    }
    const auto [first, is_new] = lines.emplace(name, number);
    if (!is_new) {
      fail(
          path,
          number,
          "the " + what + " " + printable(name) + " is already in line " +
              std::to_string(first->second));
    }
    names.emplace_back(name);
  }
  if (names.empty()) {
    throw DataError(path, "is empty; expected a " + what + " on each line.");
  }
  return names;
}

}  // namespace tern
