#include <cmath>

#include <fmt/format.h>

#include "tern/data/formats/samples/png.h"
#include "tern/kernels/check.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/plots/plot_drawing.h"

namespace tern {

namespace {

// In a page, the style sheet can set different colors, for a dark theme.
std::string paint(Ink ink, size_t series, SvgUse use) {
  if (use == SvgUse::file || ink == Ink::series) {
    const std::string color = fmt::format("#{:06X}", color_of(ink, series));
    return use == SvgUse::file ? color
                               : fmt::format(
                                     "var(--series-{}, {})",
                                     series % kSeriesColors,
                                     color);
  }
  return ink == Ink::grid   ? "var(--grid, #ddd)"
         : ink == Ink::axis ? "var(--soft, #999)"
                            : "currentColor";
}

std::string path(const Stroke& points) {
  std::string d;
  for (const Point& p : points) {
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", p.x, p.y);
  }
  // A single point has no length; its round cap draws a dot.
  return points.size() == 1 ? d + "h0" : d;
}

}  // namespace

std::string to_svg(const Plot& plot, SvgUse use) {
  const Drawing drawing = draw(plot);
  std::string elements;
  for (const Drawing::Line& line : drawing.lines) {
    const bool is_curve = line.ink == Ink::series;
    elements += fmt::format(
        "<path{} d=\"{}\" stroke-width=\"{}\" stroke=\"{}\"{}{}/>\n",
        is_curve ? " class=\"curve\"" : "",
        path(line.points),
        line.width,
        paint(line.ink, line.series, use),
        line.opacity < 1 ? fmt::format(" opacity=\"{}\"", line.opacity) : "",
        line.dashed ? " stroke-dasharray=\"5 5\"" : "");
  }
  const std::string color = paint(Ink::text, 0, use);
  for (const SvgText& text : drawing.texts) elements += svg_text(text, color);
  return svg_document(
      drawing.width,
      drawing.height,
      plot.title,
      use == SvgUse::file,
      elements);
}

std::vector<uint8_t> to_png(const Plot& plot, double scale) {
  TERN_CHECK_VALUE(
      scale >= 0.25 && scale <= 8,
      "[to_png] scale is {}; expected 0.25 to 8.",
      scale);
  const int64_t width = std::lround(plot.width * scale);
  const int64_t height = std::lround(plot.height * scale);
  return encode_png(render_svg(to_svg(plot), width, height), width, height, 3);
}

}  // namespace tern
