#pragma once

#include <string_view>
#include <vector>

namespace tern {

struct Point {
  double x = 0, y = 0;  // y grows downwards
};

/// A line through points.
using Stroke = std::vector<Point>;

/// Height of a capital letter in a font of size 1.
constexpr double kCapitalShare = 0.68;

/// How far `text` reaches in a font of `size`. It is ASCII; what is not shows
/// as question marks.
double text_width(std::string_view text, double size);

/// The letters of `text` as lines, beginning at (0, 0) on the baseline.
std::vector<Stroke> text_strokes(std::string_view text, double size);

}  // namespace tern
