#include <array>

#include <fmt/format.h>

#include "tern/learner/report/html_page.h"
#include "tern/learner/report/plot.h"
#include "tern/learner/report/plot_drawing.h"

namespace tern {

namespace {

// In a page the style sheet may give other colours, for a dark background.
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
  // One point has no line; a round cap makes it a dot.
  return points.size() == 1 ? d + "h0" : d;
}

// By Drawing::Anchor.
constexpr std::array kAnchors = {"start", "middle", "end"};

}  // namespace

std::string to_svg(const Plot& plot, SvgUse use) {
  const Drawing drawing = draw(plot);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\" "
      "font-family=\"sans-serif\" fill=\"none\" stroke-linejoin=\"round\" "
      "stroke-linecap=\"round\">\n",
      drawing.width,
      drawing.height,
      html_escape(plot.title));
  if (use == SvgUse::file) {
    svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  }
  for (const Drawing::Line& line : drawing.lines) {
    const bool is_curve = line.ink == Ink::series;
    svg += fmt::format(
        "<path{} d=\"{}\" stroke-width=\"{}\" stroke=\"{}\"{}/>\n",
        is_curve ? " class=\"curve\"" : "",
        path(line.points),
        line.width,
        paint(line.ink, line.series, use),
        line.opacity < 1 ? fmt::format(" opacity=\"{}\"", line.opacity) : "");
  }
  const std::string color = paint(Ink::text, 0, use);
  for (const Drawing::Text& text : drawing.texts) {
    if (text.text.empty()) continue;
    const std::string place =
        text.upwards
            ? fmt::format(
                  "transform=\"translate({:.1f} {:.1f}) rotate(-90)\"",
                  text.at.x,
                  text.at.y)
            : fmt::format("x=\"{:.1f}\" y=\"{:.1f}\"", text.at.x, text.at.y);
    svg += fmt::format(
        "<text {} text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
        place,
        kAnchors[static_cast<size_t>(text.anchor)],
        text.size,
        color,
        html_escape(text.text));
  }
  return svg + "</svg>\n";
}

}  // namespace tern
