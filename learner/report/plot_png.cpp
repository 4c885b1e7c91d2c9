#include <algorithm>
#include <cmath>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#ifdef TERN_WITH_ARCHIVES
#include "tern/data/formats/png_write.h"
#endif
#include "tern/learner/report/plot.h"
#include "tern/learner/report/plot_drawing.h"

namespace tern {

namespace {

// RGB pixels on which lines with round ends are drawn, smoothed.
class Canvas {
 public:
  Canvas(int64_t width, int64_t height)
      : width_(width),
        height_(height),
        pixels_(static_cast<size_t>(width * height * 3), 255),
        coverage_(static_cast<size_t>(width * height), 0) {}

  // Where a line crosses itself it covers a pixel once, as in SVG.
  void
  draw(const Stroke& points, double width, uint32_t color, double opacity) {
    for (size_t i = 0; i < points.size(); ++i) {
      cover(points[i], points[std::min(i + 1, points.size() - 1)], width / 2);
    }
    for (const size_t at : covered_) {
      const double share = opacity * std::exchange(coverage_[at], 0);
      for (int channel = 0; channel < 3; ++channel) {
        const double target = color >> (16 - 8 * channel) & 0xFF;
        uint8_t& value = pixels_[at * 3 + channel];
        value =
            static_cast<uint8_t>(std::lround(value + share * (target - value)));
      }
    }
    covered_.clear();
  }

  std::vector<uint8_t> to_png() const {
#ifdef TERN_WITH_ARCHIVES
    return encode_png(pixels_, width_, height_, 3);
#else
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "[to_png] this Tern was built without zlib; write the plot as .svg, or "
        "build with TERN_ARCHIVES=ON.");
#endif
  }

 private:
  // Pixels are covered by their distance from the line between a and b.
  void cover(Point a, Point b, double radius) {
    const double reach = radius + 1;
    const auto range = [&](double from, double to, int64_t size) {
      return std::pair{
          static_cast<int64_t>(std::clamp<double>(
              std::floor(std::min(from, to) - reach),
              0,
              size)),
          static_cast<int64_t>(std::clamp<double>(
              std::ceil(std::max(from, to) + reach),
              0,
              size))};
    };
    const auto [left, right] = range(a.x, b.x, width_);
    const auto [top, bottom] = range(a.y, b.y, height_);
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double squared = dx * dx + dy * dy;
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t x = left; x < right; ++x) {
        const double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
        const double t =
            squared > 0 ? std::clamp((px * dx + py * dy) / squared, 0.0, 1.0)
                        : 0;
        const double away = std::hypot(px - t * dx, py - t * dy);
        // A line thinner than a pixel is paler.
        const double share = std::clamp(radius + 0.5 - away, 0.0, 1.0) *
                             std::min(1.0, 2 * radius);
        if (share <= 0) continue;
        const auto at = static_cast<size_t>(y * width_ + x);
        if (coverage_[at] == 0) covered_.push_back(at);
        coverage_[at] = std::max(coverage_[at], static_cast<float>(share));
      }
    }
  }

  int64_t width_, height_;
  std::vector<uint8_t> pixels_;
  std::vector<float> coverage_;  // by the line that is being drawn
  std::vector<size_t> covered_;
};

void draw_text(Canvas& canvas, const Drawing::Text& text, double scale) {
  const double width = text_width(text.text, text.size);
  const double shift = text.anchor == Drawing::Anchor::start    ? 0
                       : text.anchor == Drawing::Anchor::middle ? -width / 2
                                                                : -width;
  for (Stroke stroke : text_strokes(text.text, text.size)) {
    for (Point& p : stroke) {
      const double along = p.x + shift;
      p = text.upwards ? Point{text.at.x + p.y, text.at.y - along}
                       : Point{text.at.x + along, text.at.y + p.y};
      p = {p.x * scale, p.y * scale};
    }
    canvas.draw(stroke, text.size / 11 * scale, color_of(Ink::text, 0), 1);
  }
}

}  // namespace

std::vector<uint8_t> to_png(const Plot& plot, double scale) {
  TORCH_CHECK_VALUE(
      scale >= 0.25 && scale <= 8,
      fmt::format("[to_png] scale is {}; expected 0.25 to 8.", scale));
  const Drawing drawing = draw(plot);
  Canvas canvas(
      std::lround(drawing.width * scale),
      std::lround(drawing.height * scale));
  for (const Drawing::Line& line : drawing.lines) {
    Stroke points = line.points;
    for (Point& p : points) p = {p.x * scale, p.y * scale};
    canvas.draw(
        points,
        line.width * scale,
        color_of(line.ink, line.series),
        line.opacity);
  }
  for (const Drawing::Text& text : drawing.texts) {
    draw_text(canvas, text, scale);
  }
  return canvas.to_png();
}

}  // namespace tern
