#include "tern/learner/plots/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include <c10/util/Exception.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/plots/plot_drawing.h"

namespace tern {

namespace {

constexpr double kRight = 24, kTop = 44, kBottom = 56;
constexpr double kFont = 13, kTitleFont = 16;
constexpr double kLegendRow = 20, kLegendKey = 30, kLegendGap = 18;
// With more points, the dots of a curve would touch.
constexpr size_t kMaxMarkers = 60;
// Tolerance for points that are beyond an edge because of rounding.
constexpr double kRounding = 0.01;
// Outliers are clipped if they make the y axis more than this many times as
// long as the usual points need. Curves with fewer than kFewPoints points have
// no outliers.
constexpr double kOutlying = 10;
constexpr int64_t kFewPoints = 20;
// Width of a column, in units. For long lines, only the extremes of each column
// are drawn.
constexpr double kColumn = 0.5;

// Okabe and Ito's palette, distinguishable with any color vision.
constexpr std::array<uint32_t, kSeriesColors> kColors =
    {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9};

using Line = Drawing::Line;

// One axis of a plot: its range in round numbers, and its labels. On a
// logarithmic axis, positions are exponents of ten.
class PlotAxis {
 public:
  explicit PlotAxis(bool is_log) : is_log_(is_log) {}

  // True for finite values (beyond 1e300 round numbers would be infinite) that
  // are positive if the axis is logarithmic.
  bool can_show(double value) const {
    return std::abs(value) <= 1e300 && (!is_log_ || value > 0);
  }
  void include(double value) {
    if (is_log_) value = std::log10(value);
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  // Call after all values are included. Widens the range to round numbers, with
  // about `ticks` of them.
  void finish(int ticks, bool whole_numbers = false);

  struct Tick {
    double position;  // 0 at the low end of the axis, 1 at the high end
    std::string label;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }
  double widest_label() const {
    double width = 0;
    for (const Tick& tick : ticks_) {
      width = std::max(width, text_width(tick.label, kFont));
    }
    return width;
  }
  // Returns a position in 0..1.
  double position(double value) const {
    if (is_log_) value = std::log10(value);
    return (value - low_) / (high_ - low_);
  }

 private:
  void finish_log(int ticks);
  std::string label(double value) const;

  bool is_log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  double step_ = 1;
  std::vector<Tick> ticks_;
};

// Round numbers are multiples of 1, 2 or 5 times a power of ten.
void PlotAxis::finish(int ticks, bool whole_numbers) {
  if (!(low_ <= high_)) low_ = 0, high_ = 1;
  if (is_log_) {
    finish_log(ticks);
    return;
  }
  // Makes room around a constant value, and hides differences in the last bits.
  const double least = std::max(1e-300, 1e-9 * std::abs(high_));
  if (high_ - low_ < least) {
    const double room = high_ == 0 ? 1 : std::abs(high_) / 2;
    low_ -= whole_numbers ? 0 : room;
    high_ += whole_numbers ? 1 : room;
  }
  const double raw = (high_ - low_) / ticks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double lead = raw / power;
  step_ = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  if (whole_numbers) step_ = std::max(step_, 1.0);
  const double first = std::floor(low_ / step_ + 1e-9);
  const double last = std::ceil(high_ / step_ - 1e-9);
  low_ = first * step_;
  high_ = last * step_;
  const auto count = static_cast<int>(last - first);
  for (int i = 0; i <= count; ++i) {
    const double value = (first + i) * step_;
    ticks_.push_back({position(value), label(value)});
  }
}

// Labels whole powers of ten; if there are few, also 2 and 5 times them.
void PlotAxis::finish_log(int ticks) {
  low_ = std::floor(low_ + 1e-9);
  high_ = std::max(low_ + 1, std::ceil(high_ - 1e-9));
  const double step = std::max(1.0, std::ceil((high_ - low_) / ticks));
  const auto add = [&](double lead, double exponent) {
    const double at = std::log10(lead) + exponent;
    ticks_.push_back(
        {(at - low_) / (high_ - low_),
         fmt::format("{:.0f}e{:+03.0f}", lead, exponent)});
  };
  const auto count = static_cast<int>((high_ - low_ + 1e-9) / step);
  for (int i = 0; i <= count; ++i) {
    const double power = low_ + i * step;
    add(1, power);
    if (high_ - low_ > 2 || power == high_) continue;
    add(2, power);
    add(5, power);
  }
}

std::string PlotAxis::label(double value) const {
  const double largest = std::max(std::abs(low_), std::abs(high_));
  if (std::abs(value) < step_ / 2) value = 0;
  if (largest >= 1e6 || step_ < 1e-4) return fmt::format("{:.3g}", value);
  const int digits =
      std::max(0, -static_cast<int>(std::floor(std::log10(step_) + 1e-9)));
  return fmt::format("{:.{}f}", value, digits);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  double length() const { return high - low; }
  void include(double from, double to) {
    low = std::min(low, from);
    high = std::max(high, to);
  }
};

class Layout {
 public:
  explicit Layout(const Plot& plot)
      : plot_(plot),
        drawing_{plot.width, plot.height, {}, {}},
        x_(plot.log_x),
        y_(plot.log_y) {}

  Drawing make() {
    find_ranges();
    add_title_and_legend();
    add_axes();
    for (const double mark : plot_.marks) add_mark(mark);
    for (size_t i = 0; i < plot_.curves.size(); ++i) add_curve(i);
    return std::move(drawing_);
  }

 private:
  bool can_show(const Curve& curve, size_t i) const {
    return x_.can_show(curve.x[i]) && y_.can_show(curve.y[i]);
  }

  static size_t points(const Curve& curve) {
    return std::min(curve.x.size(), curve.y.size());
  }

  double right() const { return right_; }
  double bottom() const { return plot_.height - kBottom; }
  double px(double position) const {
    return left_ + position * (right() - left_);
  }
  double py(double position) const {
    return bottom() - position * (bottom() - top_);
  }

  void add(Line line) { drawing_.lines.push_back(std::move(line)); }
  void add(SvgText text) { drawing_.texts.push_back(std::move(text)); }

  // Shortens the text to one line of this width.
  static std::string
  fitted(const std::string& text, double width, double font) {
    return wrap_text(text, width, font, 1).front();
  }

  // The legend is in rows below the title, where it cannot cover a curve.
  void add_title_and_legend() {
    add(SvgText{
        fitted(plot_.title, plot_.width - 2 * kRight, kTitleFont),
        plot_.width / 2,
        26,
        kTitleFont,
        Anchor::middle});
    double x = left_, y = kTop + 2;
    bool is_empty = true;
    const auto entry = [&](const std::string& name, Line key, bool is_dot) {
      if (name.empty()) return;
      const std::string label =
          fitted(name, right() - left_ - kLegendKey, kFont);
      const double width = kLegendKey + text_width(label, kFont);
      if (!is_empty && x + width > right()) {
        x = left_;
        y += kLegendRow;
      }
      key.points = {{x, y}, {x + 22, y}};
      if (is_dot) key.points = {{x + 11, y}};
      key.width = is_dot ? 7 : key.width;
      add(std::move(key));
      add(SvgText{label, x + kLegendKey, y + 4.5, kFont});
      x += width + kLegendGap;
      is_empty = false;
    };
    for (size_t i = 0; i < plot_.curves.size(); ++i) {
      const Curve& curve = plot_.curves[i];
      entry(curve.label, {{}, 3, Ink::series, i, curve.opacity}, is_dot(curve));
    }
    if (!plot_.marks.empty()) entry(plot_.marks_label, mark_line({}), false);
    if (!outside_.empty()) {
      if (!is_empty) y += kLegendRow;
      add(SvgText{
          fitted(outside_, right() - left_, kFont),
          left_,
          y + 4.5,
          kFont});
      is_empty = false;
    }
    top_ = is_empty ? kTop : y + 18;
  }

  static Line mark_line(Stroke points) {
    Line line{std::move(points), 1.2, Ink::axis};
    line.dashed = true;
    return line;
  }

  void add_mark(double x) {
    const double at = x_.can_show(x) ? x_.position(x) : -1;
    if (!(at >= 0 && at <= 1)) return;
    add(mark_line({{px(at), top_}, {px(at), bottom()}}));
  }

  static bool is_dot(const Curve& curve) {
    return curve.dots || points(curve) == 1;
  }

  void find_ranges() {
    Range all, usual;
    for (const Curve& curve : plot_.curves) {
      std::vector<double> values;
      for (size_t i = 0; i < points(curve); ++i) {
        if (!can_show(curve, i) || !curve.sets_range) continue;
        x_.include(curve.x[i]);
        values.push_back(curve.y[i]);
      }
      if (values.empty()) continue;
      const double first = values.front();
      std::ranges::sort(values);
      all.include(values.front(), values.back());
      // The first point of a curve is always shown, even if the curve falls
      // far.
      usual.include(first, first);
      const size_t cut =
          std::ssize(values) < kFewPoints ? 0 : (values.size() - 1) / 100 + 1;
      usual.include(values[cut], values[values.size() - 1 - cut]);
    }
    const bool clips = plot_.clip_outliers && !plot_.log_y &&
                       all.length() > kOutlying * usual.length() &&
                       usual.length() > 0;
    const Range& shown = clips ? usual : all;
    if (shown.low <= shown.high) {
      y_.include(shown.low);
      y_.include(shown.high);
    }
    x_.finish(plot_.width < 600 ? 5 : 8, plot_.whole_x);
    y_.finish(6);
    if (clips) find_outside();
    // The title of the y axis is left of the widest label.
    left_ = (plot_.y_label.empty() ? 12 : 34) + y_.widest_label() + 8;
    right_ = plot_.width - std::max(kRight, 6 + x_.widest_label() / 2);
  }

  void find_outside() {
    int64_t count = 0, of = 0;
    double farthest = 0;
    for (const Curve& curve : plot_.curves) {
      for (size_t i = 0; i < points(curve); ++i) {
        if (!can_show(curve, i) || !curve.sets_range) continue;
        ++of;
        const double at = y_.position(curve.y[i]);
        if (at >= 0 && at <= 1) continue;
        ++count;
        if (std::abs(curve.y[i]) > std::abs(farthest)) farthest = curve.y[i];
      }
    }
    if (count == 0) return;
    outside_ = fmt::format(
        "{} of {} points {} outside the axis, up to {:.3g}",
        count,
        of,
        count == 1 ? "is" : "are",
        farthest);
  }

  void add_axes() {
    for (const PlotAxis::Tick& tick : y_.ticks()) {
      const double y = py(tick.position);
      add(Line{{{left_, y}, {right(), y}}, 1, Ink::grid});
      add(SvgText{tick.label, left_ - 8, y + 4.5, kFont, Anchor::end});
    }
    for (const PlotAxis::Tick& tick : x_.ticks()) {
      const double x = px(tick.position);
      add(Line{{{x, bottom()}, {x, bottom() + 5}}, 1, Ink::axis});
      add(SvgText{tick.label, x, bottom() + 20, kFont, Anchor::middle});
    }
    add(Line{{{left_, bottom()}, {right(), bottom()}}, 1, Ink::axis});
    add(SvgText{
        plot_.x_label,
        (left_ + right()) / 2,
        plot_.height - 14,
        kFont,
        Anchor::middle});
    add(SvgText{
        plot_.y_label,
        18,
        (top_ + bottom()) / 2,
        kFont,
        Anchor::middle,
        /*upwards=*/true});
  }

  void add_curve(size_t index) {
    const Curve& curve = plot_.curves[index];
    Stroke run;
    const auto add_run = [&] {
      if (run.empty()) return;
      const bool is_dot = run.size() == 1;
      const double width = is_dot ? 7 : 1.8;
      for (Stroke& part : inside(is_dot ? run : thinned(run))) {
        // A single point that remains of a longer line must not be drawn as a
        // dot.
        if (part.size() == 1 && !is_dot) continue;
        add(Line{std::move(part), width, Ink::series, index, curve.opacity});
      }
      if (curve.markers && !is_dot && run.size() <= kMaxMarkers) {
        for (const Point& point : run) {
          if (!is_inside(point)) continue;
          add(Line{{point}, 6, Ink::series, index, curve.opacity});
        }
      }
      run.clear();
    };
    for (size_t i = 0; i < points(curve); ++i) {
      if (curve.dots || !can_show(curve, i)) add_run();
      if (!can_show(curve, i)) continue;
      run.push_back({px(x_.position(curve.x[i])), py(y_.position(curve.y[i]))});
    }
    add_run();
  }

  bool is_inside(const Point& point) const {
    return point.y >= top_ - kRounding && point.y <= bottom() + kRounding;
  }

  // Returns the parts of a line between the top and the bottom of the axes.
  std::vector<Stroke> inside(const Stroke& line) const {
    std::vector<Stroke> parts;
    bool is_open = false;  // the last part continues at the next point
    const auto put = [&](const Point& point) {
      if (!is_open) parts.emplace_back();
      is_open = true;
      parts.back().push_back(point);
    };
    for (size_t i = 0; i < line.size(); ++i) {
      if (i > 0) {
        for (const Point& crossing : crossings(line[i - 1], line[i])) {
          put(crossing);
          const bool leaves = parts.back().size() > 1;
          if (leaves) is_open = false;
        }
      }
      if (is_inside(line[i])) {
        put(line[i]);
      } else {
        is_open = false;
      }
    }
    return parts;
  }

  // Returns where the line from `a` to `b` crosses top and bottom, in its
  // direction.
  Stroke crossings(const Point& a, const Point& b) const {
    Stroke found;
    for (const double edge : {top_, bottom()}) {
      const double from = a.y - edge, to = b.y - edge;
      const bool is_a_outside = !is_inside(a), is_b_outside = !is_inside(b);
      if (!is_a_outside && !is_b_outside) continue;
      if (from * to >= 0) continue;
      found.push_back({a.x + from / (from - to) * (b.x - a.x), edge});
    }
    if (found.size() == 2 && a.y > b.y) std::swap(found[0], found[1]);
    return found;
  }

  // Keeps the first, lowest, highest and last point of each column of the plot.
  static Stroke thinned(const Stroke& line) {
    if (line.size() < 2000) return line;
    Stroke result;
    const auto column = [](const Point& p) {
      return std::floor(p.x / kColumn);
    };
    for (size_t begin = 0, end = 0; begin < line.size(); begin = end) {
      size_t low = begin, high = begin;
      for (; end < line.size() && column(line[end]) == column(line[begin]);
           ++end) {
        if (line[end].y < line[low].y) low = end;
        if (line[end].y > line[high].y) high = end;
      }
      for (const size_t i : std::set{begin, low, high, end - 1}) {
        result.push_back(line[i]);
      }
    }
    return result;
  }

  const Plot& plot_;
  Drawing drawing_;
  PlotAxis x_, y_;
  std::string outside_;  // text on the number of points outside the y axis
  double left_ = 0, right_ = 0, top_ = kTop;
};

}  // namespace

bool Curve::has_points() const {
  return std::ranges::any_of(y, [](double v) { return std::isfinite(v); });
}

uint32_t color_of(Ink ink, size_t series) {
  constexpr std::array<uint32_t, 3> kInks = {0x333333, 0xDDDDDD, 0x999999};
  return ink == Ink::series ? kColors[series % kColors.size()]
                            : kInks[static_cast<size_t>(ink)];
}

Drawing draw(const Plot& plot) {
  return Layout(plot).make();
}

void save_plot(const std::filesystem::path& file, const Plot& plot) {
  const std::string ending = file.extension().string();
  TERN_CHECK_VALUE(
      ending == ".svg" || ending == ".png",
      "[save_plot] the file is {}; expected a name that ends in .svg or .png.",
      file.string());
  AtomicFile out(file);
  if (ending == ".png") {
    out.write(to_png(plot));
  } else {
    out.write(to_svg(plot));
  }
  out.commit(/*durable=*/false);
}

}  // namespace tern
