#pragma once

#include <cstdint>
#include <vector>

#include "tern/learner/plots/svg.h"

namespace tern {

struct Plot;  // learner/plots/plot.h

struct Point {
  double x = 0, y = 0;  // y grows downwards
};

/// A line through points; a single point is a dot.
using Stroke = std::vector<Point>;

/// The purpose of a color; `series` is for curves.
enum class Ink { text, grid, axis, series };

/// A plot as lines and texts with their positions.
struct Drawing {
  struct Line {
    Stroke points;  // a single point is a dot
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

/// Lays out a plot.
Drawing draw(const Plot& plot);

/// Returns the color of an ink on white, as 0xRRGGBB.
uint32_t color_of(Ink ink, size_t series);
/// Number of different curve colors, after which they repeat.
constexpr size_t kSeriesColors = 6;

}  // namespace tern
