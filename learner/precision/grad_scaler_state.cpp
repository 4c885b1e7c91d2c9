// How a GradScaler checks its options, is saved and restored.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include "tern/learner/precision/grad_scaler.h"
#include "tern/learner/precision/grad_scaler_checks.h"

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

GradScalerState GradScaler::state_dict() const {
  if (!enabled_) return {};
  const Values now = values();
  return {
      .scale = now.scale,
      .growth_factor = options_.growth_factor,
      .backoff_factor = options_.backoff_factor,
      .growth_interval = options_.growth_interval,
      .growth_tracker = now.growth_tracker};
}

void GradScaler::load_state_dict(const GradScalerState& state) {
  if (!enabled_) return;
  TORCH_CHECK_VALUE(
      !state.empty(),
      "[GradScaler] The source state dict is empty, possibly because it was "
      "saved from a disabled instance of GradScaler.");
  check_factors(
      state.growth_factor,
      state.backoff_factor,
      state.growth_interval);
  check_scale("the saved scale", state.scale);
  TORCH_CHECK_VALUE(
      state.growth_tracker >= 0,
      fmt::format(
          "[GradScaler] the saved growth_tracker is {}; expected >= 0.",
          state.growth_tracker));
  options_.growth_factor = state.growth_factor;
  options_.backoff_factor = state.backoff_factor;
  options_.growth_interval = state.growth_interval;
  const int64_t tracker =
      std::min(state.growth_tracker, state.growth_interval - 1);
  initial_ = {
      static_cast<float>(state.scale),
      static_cast<int32_t>(tracker),
      0};
  if (packed_.defined()) {
    const torch::NoGradGuard no_grad;
    scale_.fill_(initial_.scale);
    growth_tracker_.fill_(initial_.growth_tracker);
    skips_.zero_();
  }
}

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& [optimizer, record] : records_) {
    TORCH_CHECK(
        record.stage == Stage::ready,
        "[GradScaler] save() in the middle of an iteration; a GradScaler may "
        "only be saved before scale() or after update().");
  }
  const GradScalerState state = state_dict();
  if (state.empty()) return;
  archive.write("scale", c10::IValue(state.scale));
  archive.write("growth_factor", c10::IValue(state.growth_factor));
  archive.write("backoff_factor", c10::IValue(state.backoff_factor));
  archive.write("growth_interval", c10::IValue(state.growth_interval));
  archive.write("_growth_tracker", c10::IValue(state.growth_tracker));
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  GradScalerState state;
  c10::IValue value;
  if (archive.try_read("scale", value)) {
    state.scale = value.toDouble();
    archive.read("growth_factor", value);
    state.growth_factor = value.toDouble();
    archive.read("backoff_factor", value);
    state.backoff_factor = value.toDouble();
    archive.read("growth_interval", value);
    state.growth_interval = value.toInt();
    archive.read("_growth_tracker", value);
    state.growth_tracker = value.toInt();
  }
  load_state_dict(state);
}

}  // namespace tern
