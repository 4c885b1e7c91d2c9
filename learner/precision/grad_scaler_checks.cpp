#include "tern/learner/precision/grad_scaler_checks.h"

#include <cmath>

#include <fmt/format.h>

namespace tern {

void check_factors(double growth, double backoff, int64_t interval) {
  TORCH_CHECK_VALUE(
      growth > 1,
      fmt::format(
          "[GradScaler] growth_factor is {}; the growth factor must be > 1.0.",
          growth));
  TORCH_CHECK_VALUE(
      backoff < 1,
      fmt::format(
          "[GradScaler] backoff_factor is {}; the backoff factor must be < "
          "1.0.",
          backoff));
  TORCH_CHECK_VALUE(
      backoff > 0,
      fmt::format("[GradScaler] backoff_factor is {}; expected > 0.", backoff));
  TORCH_CHECK_VALUE(
      interval >= 1,
      fmt::format(
          "[GradScaler] growth_interval is {}; expected >= 1. For a scale that "
          "never grows take a huge one.",
          interval));
}

void check_scale(const char* name, double scale) {
  TORCH_CHECK_VALUE(
      std::isfinite(static_cast<float>(scale)) && static_cast<float>(scale) > 0,
      fmt::format(
          "[GradScaler] {} is {}; expected a finite float > 0.",
          name,
          scale));
}

void check_options(const GradScalerOptions& options) {
  check_factors(
      options.growth_factor,
      options.backoff_factor,
      options.growth_interval);
  check_scale("init_scale", options.init_scale);
  TORCH_CHECK_VALUE(
      0 <= options.min_scale && options.min_scale <= options.max_scale,
      fmt::format(
          "[GradScaler] min_scale is {} and max_scale {}; expected 0 <= "
          "min_scale <= max_scale.",
          options.min_scale,
          options.max_scale));
}

}  // namespace tern
