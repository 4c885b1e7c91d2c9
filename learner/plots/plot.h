#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tern {

/// Points joined by a line, with a gap at each point that is not finite. A
/// single point is drawn as a dot.
struct Curve {
  std::string label;
  std::vector<double> x, y;
  double opacity = 1;
  /// Draw dots without a line.
  bool dots = false;
  /// Also draw a dot at each point of the line, unless the dots would touch.
  bool markers = false;
  /// False: this curve does not affect the ranges of the axes.
  bool sets_range = true;

  /// True if any value is finite.
  bool has_points() const;
};

/// A plot of curves that share a pair of axes.
struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  /// Logarithmic axes; points <= 0 are left out.
  bool log_x = false, log_y = false;
  /// Excludes a few outliers from the y axis, such as the loss of a batch that
  /// overflowed, so that they do not flatten the rest. Applies if these points
  /// would make the axis more than ten times as long as the range from the 1st
  /// to the 99th percentile of each curve, including its first point. A line
  /// under the title then shows the number of excluded points. Does not apply
  /// to a logarithmic axis; curves with fewer than 20 points keep all their
  /// points.
  bool clip_outliers = false;
  /// Label the x axis with whole numbers only.
  bool whole_x = false;
  /// Positions on the x axis that get a dashed vertical line, and the legend's
  /// label for these lines.
  std::vector<double> marks = {};
  std::string marks_label = {};
  double width = 720, height = 440;
};

/// Options of a plot over batches.
struct PlotOptions {
  /// Logarithmic y axis, like fastai's `plot_loss(log=True)`; values <= 0 are
  /// left out.
  bool log_y = false;
  /// See `Plot::clip_outliers`. False: the y axis includes every point.
  bool clip_outliers = true;
};

/// Where an SVG is used.
enum class SvgUse {
  file,  // standalone, on white
  page   // inside HTML, in the page's colors
};

/// Returns the plot as an SVG document of `width` by `height` units. Thins out
/// curves that have more points than can be distinguished, keeping their
/// extremes.
std::string to_svg(const Plot& plot, SvgUse use = SvgUse::file);

/// Returns the plot as a PNG file.
/// \param scale  Pixels per unit of `width` and `height`; 0.25 to 8.
/// \throws c10::ValueError for any other scale, c10::NotImplementedError in a
///         build without TERN_ARCHIVES.
std::vector<uint8_t> to_png(const Plot& plot, double scale = 2);

/// Writes the plot as SVG or PNG, depending on the file's extension.
/// \throws IoError if the file cannot be written, c10::ValueError for any other
///         extension.
void save_plot(const std::filesystem::path& file, const Plot& plot);

}  // namespace tern
