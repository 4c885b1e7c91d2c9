#pragma once

#include <limits>
#include <string>
#include <vector>

namespace tern {

/// One axis of a plot: its range in round numbers, and what is written there.
/// Of a logarithmic one, positions are exponents of ten.
class PlotAxis {
 public:
  explicit PlotAxis(bool is_log) : is_log_(is_log) {}

  /// Whether the value has a place: finite (up to 1e300), and positive on a
  /// logarithmic axis.
  bool can_show(double value) const;
  void include(double value);
  /// Once all is included: widens to round numbers about `ticks` apart.
  void finish(int ticks);

  struct Tick {
    double position;  // 0 at the low end of the axis, 1 at the high end
    std::string label;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }
  /// In 0..1.
  double position(double value) const;

 private:
  void finish_log(int ticks);
  std::string label(double value) const;

  bool is_log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  double step_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace tern
