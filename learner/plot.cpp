#include "tern/learner/plot.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace {

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 76, kRight = 24, kTop = 44, kBottom = 56;
// Okabe and Ito's palette, which people with any colour vision tell apart.
constexpr std::array kColors =
    {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"};

struct Axis {
  bool is_log = false;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double step = 1;

  void include(double value) {
    if (is_log) value = std::log10(value);
    low = std::min(low, value);
    high = std::max(high, value);
  }

  // Widens to round numbers: 1, 2 or 5 times a power of ten apart.
  void finish(int ticks) {
    if (!(low <= high)) low = 0, high = 1;
    if (high - low < 1e-12 * std::max(1.0, std::abs(high))) high = low + 1;
    if (is_log) {
      low = std::floor(low + 1e-9);
      high = std::ceil(high - 1e-9);
      step = std::max(1.0, std::ceil((high - low) / ticks));
      return;
    }
    const double raw = (high - low) / ticks;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double lead = raw / power;
    step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    low = std::floor(low / step + 1e-9) * step;
    high = std::ceil(high / step - 1e-9) * step;
  }

  std::vector<double> ticks() const {
    std::vector<double> values;
    const auto count = static_cast<int>(std::lround((high - low) / step));
    for (int i = 0; i <= count; ++i) values.push_back(low + i * step);
    return values;
  }

  std::string label(double tick) const {
    if (is_log) return fmt::format("1e{:+03.0f}", tick);
    const int digits =
        std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
    if (std::abs(high) >= 1e6 || step < 1e-4)
      return fmt::format("{:.3g}", tick);
    return fmt::format(
        "{:.{}f}",
        std::abs(tick) < step / 2 ? 0.0 : tick,
        digits);
  }

  double place(double value, double from, double to) const {
    if (is_log) value = std::log10(value);
    return place_tick(value, from, to);
  }

  // Ticks of a logarithmic axis are exponents already.
  double place_tick(double value, double from, double to) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

}  // namespace

std::string escape_xml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string to_svg(const Plot& plot) {
  Axis x, y;
  x.is_log = plot.log_x;
  const auto can_be_drawn = [&](double at, double value) {
    return std::isfinite(at) && std::isfinite(value) && (!plot.log_x || at > 0);
  };
  for (const Curve& curve : plot.curves) {
    for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
      if (!can_be_drawn(curve.x[i], curve.y[i])) continue;
      x.include(curve.x[i]);
      y.include(curve.y[i]);
    }
  }
  x.finish(8);
  y.finish(6);
  const auto px = [&](double v) { return x.place(v, kLeft, kWidth - kRight); };
  const auto py = [&](double v) { return y.place(v, kHeight - kBottom, kTop); };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" "
      "font-size=\"13\" fill=\"#333\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"26\" text-anchor=\"middle\" font-size=\"16\">{3}"
      "</text>\n",
      kWidth,
      kHeight,
      (kLeft + kWidth - kRight) / 2,
      escape_xml(plot.title));
  for (const double tick : y.ticks()) {
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" "
        "stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}"
        "</text>\n",
        kLeft,
        kWidth - kRight,
        py(tick),
        py(tick),
        kLeft - 8,
        py(tick) + 4,
        y.label(tick));
  }
  for (const double tick : x.ticks()) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
        "stroke=\"#999\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x.place_tick(tick, kLeft, kWidth - kRight),
        kHeight - kBottom,
        kHeight - kBottom + 5,
        kHeight - kBottom + 20,
        x.label(tick));
  }
  svg += fmt::format(
      "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#999\"/>\n"
      "<text x=\"{3}\" y=\"{4}\" text-anchor=\"middle\">{5}</text>\n"
      "<text transform=\"translate(18 {6}) rotate(-90)\" "
      "text-anchor=\"middle\">{7}</text>\n",
      kLeft,
      kWidth - kRight,
      kHeight - kBottom,
      (kLeft + kWidth - kRight) / 2,
      kHeight - 14,
      escape_xml(plot.x_label),
      (kTop + kHeight - kBottom) / 2,
      escape_xml(plot.y_label));

  size_t drawn = 0;
  for (const Curve& curve : plot.curves) {
    const char* color = kColors[drawn % kColors.size()];
    std::string points;
    const auto flush = [&] {
      // One point has no line; a round cap makes it a dot.
      if (!points.empty()) {
        svg += fmt::format(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
            "stroke-linejoin=\"round\" stroke-linecap=\"round\" "
            "opacity=\"{}\"/>\n",
            points.find('L') == std::string::npos ? points + "h0" : points,
            color,
            points.find('L') == std::string::npos ? 7 : 1.8,
            curve.opacity);
      }
      points.clear();
    };
    const size_t count = std::min(curve.x.size(), curve.y.size());
    for (size_t i = 0; i < count; ++i) {
      if (!can_be_drawn(curve.x[i], curve.y[i])) {
        flush();
        continue;
      }
      points += fmt::format(
          "{}{:.1f} {:.1f}",
          points.empty() ? "" : "L",
          px(curve.x[i]),
          py(curve.y[i]));
    }
    flush();
    const double row = kTop + 12 + 20 * static_cast<double>(drawn);
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\" "
        "stroke-width=\"3\" opacity=\"{}\"/><text x=\"{}\" "
        "y=\"{}\">{}</text>\n",
        kWidth - 190,
        kWidth - 164,
        row,
        row,
        color,
        curve.opacity,
        kWidth - 156,
        row + 4,
        escape_xml(curve.label));
    ++drawn;
  }
  return svg + "</svg>\n";
}

void save_svg(const std::filesystem::path& file, const Plot& plot) {
  errno = 0;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << to_svg(plot);
  stream.close();
  if (!stream) throw IoError(file.string(), "write the plot", errno);
}

}  // namespace tern
