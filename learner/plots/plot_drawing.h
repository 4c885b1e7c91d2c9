#pragma once

#include <cstdint>
#include <vector>

#include "tern/learner/plots/svg.h"

namespace tern {

struct Plot;  // learner/plots/plot.h

struct Point {
  double x = 0, y = 0;  // y grows downwards
};

/// A line through points.
using Stroke = std::vector<Point>;

/// What a color is for; `series` and above are those of the curves.
enum class Ink { text, grid, axis, series };

/// A plot as lines and words at their places.
struct Drawing {
  struct Line {
    Stroke points;  // a single one is a dot
    double width = 1;
    Ink ink = Ink::axis;
    size_t series = 0;
    double opacity = 1;
    bool dashed = false;
  };
  double width, height;
  std::vector<Line> lines;
  std::vector<SvgText> texts;
};

/// Lays the plot out.
Drawing draw(const Plot& plot);

/// The color of an ink on white, as 0xRRGGBB.
uint32_t color_of(Ink ink, size_t series);
/// Curves have one of so many colors.
constexpr size_t kSeriesColors = 6;

}  // namespace tern
