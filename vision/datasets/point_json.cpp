#include "tern/vision/datasets/point_json.h"

#include <cmath>

#include <fmt/format.h>

#include "tern/data/formats/json.h"
#include "tern/data/formats/text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr const char* kField = "points";

Point read_point(JsonReader& json) {
  Point point;
  if (json.is_null()) return {.visible = false};
  std::vector<double> numbers;
  json.begin_array();
  while (json.next_element()) {
    numbers.push_back(json.number());
    if (!std::isfinite(numbers.back())) json.fail("expected a finite number");
  }
  if (numbers.size() != 2) {
    json.fail(fmt::format(
        "a point has {} numbers; expected two, x and y, or null",
        numbers.size()));
  }
  point.x = numbers[0];
  point.y = numbers[1];
  return point;
}

}  // namespace

std::string to_point_json(const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points) {
    if (!text.empty()) text += ",";
    if (!point.visible) {
      text += "null";
      continue;
    }
    TERN_CHECK_VALUE(
        std::isfinite(point.x) && std::isfinite(point.y),
        "[to_point_json] a point is {}, {}; expected finite numbers. Set "
        "visible to false for an unknown point.",
        point.x,
        point.y);
    text += fmt::format("[{},{}]", json_number(point.x), json_number(point.y));
  }
  return fmt::format(R"({{"{}":[{}]}})", kField, text);
}

std::vector<Point> read_point_json(
    std::string_view text,
    const std::string& where) {
  JsonReader json(text, where);
  std::vector<Point> points;
  bool has_points = false;
  std::string field;
  json.begin_object();
  while (json.next_key(field)) {
    if (field != kField) {
      json.fail(
          "the field " + printable(field) + " is unknown; expected points");
    }
    json.begin_array();
    while (json.next_element()) points.push_back(read_point(json));
    has_points = true;
  }
  json.end();
  if (!has_points) json.fail("there is no field points");
  return points;
}

}  // namespace tern
