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
  /// Dots that no line joins.
  bool dots = false;
};

/// A picture of curves over one pair of axes.
struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  /// Powers of ten at equal distances; points <= 0 are left out.
  bool log_x = false, log_y = false;
  double width = 720, height = 440;
};

/// What an SVG is drawn for.
enum class SvgUse {
  file,  // by itself, on white
  page   // inside HTML: in the page's text colour, on its background
};

/// The plot as an SVG document of `width` by `height` units. Of a curve with
/// more points than can be told apart, the highest and lowest are drawn.
std::string to_svg(const Plot& plot, SvgUse use = SvgUse::file);

/// The plot as a PNG file.
/// \param scale  Pixels for each unit of `width` and `height`; 0.25 to 8.
/// \throws c10::ValueError for another scale, c10::NotImplementedError in a
/// build
///         without TERN_ARCHIVES.
std::vector<uint8_t> to_png(const Plot& plot, double scale = 2);

/// Writes the plot as SVG or PNG, as the file's ending says; replaces the file.
/// \throws IoError if it cannot be written, c10::ValueError for another ending.
void save_plot(const std::filesystem::path& file, const Plot& plot);

/// Writes `to_svg(plot)`, whatever the file is called.
void save_svg(const std::filesystem::path& file, const Plot& plot);

}  // namespace tern
