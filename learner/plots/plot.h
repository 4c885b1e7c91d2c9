#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tern {

/// Points joined by a line; a point that is not finite breaks it. A single
/// point is drawn as a dot.
struct Curve {
  std::string label;
  std::vector<double> x, y;
  double opacity = 1;
  /// Draws dots without a line.
  bool dots = false;
  /// Draws a dot at each of the points on the line too, where there is room.
  bool markers = false;
  /// False: the ranges of the axes are those of the other curves.
  bool sets_range = true;

  /// Whether any value is finite.
  bool has_points() const;
};

/// A plot of curves over one pair of axes.
struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  /// Logarithmic axes; points <= 0 are left out.
  bool log_x = false, log_y = false;
  /// Keeps a few points far away from all others, such as the losses of a batch
  /// that overflowed, from flattening the rest: where they would make the y axis
  /// more than ten times as long as it is from the 1st to the 99th percentile of
  /// each curve and at its first point, it ends there, and a line under the title
  /// says how many points are outside. Not on a logarithmic axis, nor for curves
  /// with fewer than 20 points.
  bool clip_outliers = false;
  /// Labels the x axis with whole numbers alone.
  bool whole_x = false;
  /// Places on the x axis with a dashed line each, and what the legend says of
  /// them.
  std::vector<double> marks = {};
  std::string marks_label = {};
  double width = 720, height = 440;
};

/// Options of a plot over batches.
struct PlotOptions {
  /// A logarithmic y axis, as fastai's `plot_loss(log=True)`; values <= 0 are
  /// left out.
  bool log_y = false;
  /// See `Plot::clip_outliers`; false: the y axis reaches every point.
  bool clip_outliers = true;
};

/// Where an SVG is used.
enum class SvgUse {
  file,  // by itself, on white
  page   // inside HTML: in the page's colors
};

/// Returns the plot as an SVG document of `width` by `height` units. Thins out
/// curves with more points than can be told apart, keeping their extremes.
std::string to_svg(const Plot& plot, SvgUse use = SvgUse::file);

/// Returns the plot as a PNG file.
/// \param scale  Pixels for each unit of `width` and `height`; 0.25 to 8.
/// \throws c10::ValueError for another scale, c10::NotImplementedError in a
///         build without TERN_ARCHIVES.
std::vector<uint8_t> to_png(const Plot& plot, double scale = 2);

/// Writes the plot as SVG or PNG, chosen by the file's extension.
/// \throws IoError if it cannot be written, c10::ValueError for another
///         extension.
void save_plot(const std::filesystem::path& file, const Plot& plot);

}  // namespace tern
