#pragma once

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
};

/// A picture of curves over one pair of axes.
struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  /// Powers of ten at equal distances; points with x <= 0 are left out.
  bool log_x = false;
};

/// `text` with the characters escaped that have a meaning in SVG and HTML.
std::string escape_xml(const std::string& text);

/// The plot as an SVG document of 720 by 440 units.
std::string to_svg(const Plot& plot);

/// Writes `to_svg(plot)`; replaces the file.
/// \throws IoError if it cannot be written.
void save_svg(const std::filesystem::path& file, const Plot& plot);

}  // namespace tern
