#include "tern/vision/datasets/box_checks.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace fs = std::filesystem;

std::string box_fault(const Box& box, ImageSize image) {
  // No image has pixels beyond this coordinate.
  constexpr auto kMaxCoordinate = static_cast<double>(kMaxPixels);
  for (const double value : {box.x1, box.y1, box.x2, box.y2, box.area}) {
    if (!std::isfinite(value)) return "is NaN or infinite";
  }
  if (!(box.x2 > box.x1)) return "has no width";
  if (!(box.y2 > box.y1)) return "has no height";
  if (box.area < 0) return fmt::format("has an area of {}", box.area);
  const bool is_known = image != ImageSize();
  const double right =
      is_known ? static_cast<double>(image.width) : kMaxCoordinate;
  const double bottom =
      is_known ? static_cast<double>(image.height) : kMaxCoordinate;
  if (box.x1 < -1 || box.y1 < -1 || box.x2 > right + 1 || box.y2 > bottom + 1) {
    return is_known ? fmt::format(
                          "reaches beyond the image of {} x {} pixels",
                          image.width,
                          image.height)
                    : "reaches beyond any image";
  }
  if (box.x2 <= 0 || box.y2 <= 0 || box.x1 >= right || box.y1 >= bottom) {
    return "is outside the image";
  }
  return "";
}

bool has_size(const Box& box) {
  const bool is_finite = std::isfinite(box.x1) && std::isfinite(box.y1) &&
                         std::isfinite(box.x2) && std::isfinite(box.y2) &&
                         std::isfinite(box.area);
  return is_finite && box.x1 < box.x2 && box.y1 < box.y2 && box.area >= 0;
}

void BadBoxCounter::reject(const std::string& where, const std::string& what) {
  if (policy_ == BadBoxes::error) {
    throw DataError(
        where,
        what +
            ". Correct it, or omit such boxes with bad_boxes = "
            "BadBoxes::skip.");
  }
  if (bad_++ == 0) first_ = where == path_ ? what : where + ": " + what;
}

void BadBoxCounter::finish() const {
  if (bad_ == 0) return;
  sink_.or_terminal()->warning(fmt::format(
      "{}: {} of {} boxes are invalid and are omitted from training; the first "
      "is {}.",
      path_,
      bad_,
      total_,
      first_));
}

void check_class_name(const std::string& name, const std::string& where) {
  if (name.empty()) {
    throw DataError(
        where,
        "has a class without a name; expected a name. Correct the file.");
  }
  const bool has_control = std::ranges::any_of(name, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
  if (!is_utf8(name) || has_control) {
    throw DataError(
        where,
        "has the class " + printable(name) +
            "; expected UTF-8 text without control characters. Correct the "
            "file.");
  }
}

BoxClasses::BoxClasses(std::vector<std::string> given, const char* caller)
    : given_(std::move(given)) {
  for (const std::string& name : given_) {
    TERN_CHECK_VALUE(
        !name.empty() && is_utf8(name),
        "[{}] the class {} of the option classes is not a valid name; expected "
        "UTF-8 text.",
        caller,
        printable(name));
    TERN_CHECK_VALUE(
        known_.insert(name).second,
        "[{}] the option classes has {} twice; expected distinct classes.",
        caller,
        printable(name));
  }
}

bool BoxClasses::knows(const std::string& name, const std::string& where) {
  if (known_.contains(name)) return true;
  check_class_name(name, where);
  if (!given_.empty()) return false;
  known_.insert(name);
  return true;
}

std::vector<std::string> BoxClasses::names() const {
  if (!given_.empty()) return given_;
  return {known_.begin(), known_.end()};
}

std::string BoxClasses::some() const {
  constexpr size_t kShown = 10;
  std::vector<std::string> shown = names();
  const bool has_more = shown.size() > kShown;
  if (has_more) shown.resize(kShown);
  return fmt::format("{}{}", fmt::join(shown, ", "), has_more ? ", ..." : "");
}

std::string annotated_image_path(
    const fs::path& folder,
    const std::string& name,
    bool check_files,
    const std::string& where) {
  if (const char* fault = member_name_fault(name)) {
    throw_data_error(
        where,
        "names the image {}, which {}; expected a path below the folder of the "
        "images. Correct the name.",
        printable(name),
        fault);
  }
  fs::path path = folder / name;
  std::error_code ignored;
  if (check_files && !fs::is_regular_file(path, ignored)) {
    throw_data_error(
        where,
        "names the image {}, which {} does not have. Correct the folder or the "
        "name; check_files = false skips this check.",
        printable(name),
        folder.string());
  }
  return path.string();
}

}  // namespace tern
