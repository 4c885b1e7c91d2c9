#include "tern/vision/datasets/box_json.h"

#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "tern/data/formats/json.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/box_checks.h"

namespace tern {
namespace {

constexpr const char* kUpright = "upright";
constexpr const char* kStored = "stored";

std::string json_of(const Box& box) {
  std::string text = fmt::format(
      R"({{"bbox":[{},{},{},{}],"label":{})",
      json_number(box.x1),
      json_number(box.y1),
      json_number(box.x2),
      json_number(box.y2),
      json_quoted(box.label));
  if (box.crowd) text += R"(,"crowd":true)";
  if (box.area != 0) text += R"(,"area":)" + json_number(box.area);
  return text + "}";
}

[[noreturn]] void fail_unknown(
    const JsonReader& json,
    const std::string& field,
    const char* known) {
  json.fail("the field " + printable(field) + " is unknown; expected " + known);
}

std::array<double, 4> read_bbox(JsonReader& json) {
  std::array<double, 4> edges = {};
  size_t count = 0;
  json.begin_array();
  while (json.next_element()) {
    const double edge = json.number();
    if (count < edges.size()) edges[count] = edge;
    ++count;
  }
  if (count != edges.size()) {
    json.fail(fmt::format(
        "a bbox has {} numbers; expected four, x1, y1, x2, y2",
        count));
  }
  return edges;
}

Box read_box(JsonReader& json) {
  Box box;
  bool has_bbox = false, has_label = false;
  std::string field;
  json.begin_object();
  while (json.next_key(field)) {
    if (field == "bbox") {
      const auto [x1, y1, x2, y2] = read_bbox(json);
      box.x1 = x1;
      box.y1 = y1;
      box.x2 = x2;
      box.y2 = y2;
      has_bbox = true;
    } else if (field == "label") {
      box.label = json.string();
      has_label = true;
    } else if (field == "crowd") {
      box.crowd = json.boolean();
    } else if (field == "area") {
      box.area = json.number();
    } else {
      fail_unknown(json, field, "bbox, label, crowd or area");
    }
  }
  if (!has_bbox || !has_label) {
    json.fail(fmt::format(
        "a box has no {}; expected bbox and label",
        has_bbox ? "label" : "bbox"));
  }
  return box;
}

ImageBoxes read_objects(JsonReader& json) {
  ImageBoxes objects;
  bool has_width = false, has_height = false, has_boxes = false;
  std::string field;
  json.begin_object();
  while (json.next_key(field)) {
    const bool is_width = field == "width";
    if (is_width || field == "height") {
      const int64_t side = json.integer();
      if (side <= 0 || side > kMaxPixels) {
        json.fail(fmt::format("it is {}; expected a number of pixels", side));
      }
      (is_width ? objects.image.width : objects.image.height) = side;
      (is_width ? has_width : has_height) = true;
    } else if (field == "pixels") {
      const std::string pixels = json.string();
      if (pixels != kUpright && pixels != kStored) {
        json.fail(
            "it is " + printable(pixels) + "; expected upright or stored");
      }
      objects.pixels = pixels == kUpright ? AnnotatedPixels::upright
                                          : AnnotatedPixels::stored;
    } else if (field == "boxes") {
      json.begin_array();
      while (json.next_element()) objects.boxes.push_back(read_box(json));
      has_boxes = true;
    } else {
      fail_unknown(json, field, "width, height, pixels or boxes");
    }
  }
  json.end();
  if (!has_boxes || has_width != has_height) {
    json.fail(fmt::format(
        "there is no field {}; expected boxes, and either both of width and "
        "height or neither",
        !has_boxes  ? "boxes"
        : has_width ? "height"
                    : "width"));
  }
  return objects;
}

constexpr const char* kAdvice =
    "Correct it, or create the shards again; to clip boxes that extend beyond "
    "their image, set annotations.clip.";

ImageBoxes parsed(std::string_view text, const std::string& where) {
  try {
    JsonReader json(text, where);
    return read_objects(json);
  } catch (const DataError& error) {
    const size_t begin = where.empty() ? 0 : where.size() + 2;
    throw_data_error(
        where,
        "{} {}",
        std::string_view(error.what()).substr(begin),
        kAdvice);
  }
}

}  // namespace

std::string to_box_json(const ImageBoxes& objects) {
  std::string text = "{";
  if (objects.image != ImageSize{}) {
    text += fmt::format(
        R"("width":{},"height":{},)",
        objects.image.width,
        objects.image.height);
  }
  if (objects.pixels != AnnotatedPixels::unknown) {
    const bool is_upright = objects.pixels == AnnotatedPixels::upright;
    text += fmt::format(R"("pixels":"{}",)", is_upright ? kUpright : kStored);
  }
  text += R"("boxes":[)";
  bool is_first = true;
  for (const Box& box : objects.boxes) {
    text += (is_first ? "" : ",") + json_of(box);
    is_first = false;
  }
  return text + "]}";
}

ImageBoxes
read_box_json(std::string_view text, const std::string& where, bool clip) {
  ImageBoxes objects = parsed(text, where);
  for (size_t i = 0; i < objects.boxes.size(); ++i) {
    const Box& box = objects.boxes[i];
    check_class_name(box.label, fmt::format("{}, boxes[{}]", where, i));
    const std::string fault = box_fault(box, objects.image);
    if (fault.empty() || (clip && has_size(box))) continue;
    throw_data_error(
        where,
        "boxes[{}] of class {} is [{}, {}, {}, {}], area {}, which {}; "
        "expected finite x1, y1, x2, y2 in the image, x1 below x2 and y1 below "
        "y2, and no negative area. {}",
        i,
        printable(box.label),
        box.x1,
        box.y1,
        box.x2,
        box.y2,
        box.area,
        fault,
        kAdvice);
  }
  return objects;
}

}  // namespace tern
