#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tern/vision/datasets/annotations.h"

namespace tern {

/// Returns the points of an image as JSON. `read_point_json` reads exactly the
/// same numbers.
///
///   {"points":[[30.5,40],null,[12,80.25]]}
///
/// A point is x, y; null if it is not visible.
/// \throws c10::ValueError if a visible point is not finite.
std::string to_point_json(const std::vector<Point>& points);

/// Parses the JSON that `to_point_json` writes.
/// \param where  The file or sample, for error messages.
/// \throws DataError naming the point and its value, if a point is not null or
///         two finite numbers; if `points` is missing or another field occurs;
///         or if the text is not JSON.
std::vector<Point> read_point_json(
    std::string_view text,
    const std::string& where);

}  // namespace tern
