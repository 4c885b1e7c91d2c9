#include "tern/callbacks/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace tern::schedule {

Schedule constant(double value) {
  return [=](double) { return value; };
}

Schedule linear(double start, double end) {
  return [=](double position) { return start + position * (end - start); };
}

Schedule cosine(double start, double end) {
  return [=](double position) {
    return start + (1 + std::cos(std::numbers::pi * (1 - position))) *
                       (end - start) / 2;
  };
}

Schedule exponential(double start, double end) {
  TORCH_CHECK_VALUE(
      start > 0 && end > 0,
      fmt::format(
          "[schedule::exponential] start is {} and end is {}; expected both > "
          "0.",
          start,
          end));
  return
      [=](double position) { return start * std::pow(end / start, position); };
}

Schedule polynomial(double start, double end, double power) {
  TORCH_CHECK_VALUE(
      power > 0,
      fmt::format(
          "[schedule::polynomial] power is {}; expected a number > 0.",
          power));
  return [=](double position) {
    return start + (end - start) * std::pow(position, power);
  };
}

Schedule phases(std::vector<Phase> phases) {
  double sum = 0;
  for (const Phase& phase : phases) {
    TORCH_CHECK_VALUE(
        phase.part > 0 && phase.schedule,
        fmt::format(
            "[schedule::phases] a phase has part {}{}; expected a part > 0 and "
            "a schedule.",
            phase.part,
            phase.schedule ? "" : " and no schedule"));
    sum += phase.part;
  }
  TORCH_CHECK_VALUE(
      std::abs(sum - 1) < 1e-9,
      fmt::format(
          "[schedule::phases] the parts of {} phases add up to {}; expected 1.",
          phases.size(),
          sum));
  return [phases = std::move(phases)](double position) {
    double begin = 0;
    size_t i = 0;
    for (; i + 1 < phases.size() && position >= begin + phases[i].part; ++i) {
      begin += phases[i].part;
    }
    // Rounding may end a phase behind its end, where a rate is below 0.
    return phases[i].schedule(
        std::min(1.0, (position - begin) / phases[i].part));
  };
}

Schedule combined_cosine(double part, double start, double middle, double end) {
  if (part >= 1) return cosine(start, middle);
  return phases(
      {{part, cosine(start, middle)}, {1 - part, cosine(middle, end)}});
}

}  // namespace tern::schedule
