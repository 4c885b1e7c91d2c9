#include "tern/learner/report/plot_axis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tern {

namespace {

// Round numbers beyond the range of a double would be infinite.
constexpr double kLargest = 1e300;

}  // namespace

bool PlotAxis::can_show(double value) const {
  return std::abs(value) <= kLargest && (!is_log_ || value > 0);
}

void PlotAxis::include(double value) {
  if (is_log_) value = std::log10(value);
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
}

// Round numbers are 1, 2 or 5 times a power of ten apart.
void PlotAxis::finish(int ticks) {
  if (!(low_ <= high_)) low_ = 0, high_ = 1;
  if (is_log_) {
    finish_log(ticks);
    return;
  }
  // A constant gets room, and differences in the last bits do not show.
  const double least = std::max(1e-300, 1e-9 * std::abs(high_));
  if (high_ - low_ < least) {
    const double room = high_ == 0 ? 1 : std::abs(high_) / 2;
    low_ -= room;
    high_ += room;
  }
  const double raw = (high_ - low_) / ticks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double lead = raw / power;
  step_ = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  const double first = std::floor(low_ / step_ + 1e-9);
  const double last = std::ceil(high_ / step_ - 1e-9);
  low_ = first * step_;
  high_ = last * step_;
  for (double i = first; i <= last; ++i) {
    const double value = i * step_;
    ticks_.push_back({position(value), label(value)});
  }
}

// Whole powers of ten; of few, also 2 and 5 times them.
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
  for (double power = low_; power <= high_ + 1e-9; power += step) {
    add(1, power);
    if (high_ - low_ > 2 || power == high_) continue;
    add(2, power);
    add(5, power);
  }
}

double PlotAxis::position(double value) const {
  if (is_log_) value = std::log10(value);
  return (value - low_) / (high_ - low_);
}

std::string PlotAxis::label(double value) const {
  const double largest = std::max(std::abs(low_), std::abs(high_));
  if (std::abs(value) < step_ / 2) value = 0;
  if (largest >= 1e6 || step_ < 1e-4) return fmt::format("{:.3g}", value);
  const int digits =
      std::max(0, -static_cast<int>(std::floor(std::log10(step_) + 1e-9)));
  return fmt::format("{:.{}f}", value, digits);
}

}  // namespace tern
