// How a GradScaler checks its options, and is set, saved and restored.

#include <algorithm>
#include <cmath>

#include <torch/cuda.h>
#include <torch/serialize/archive.h>

#include "tern/kernels/check.h"
#include "tern/learner/precision/grad_scaler.h"

namespace tern {

namespace {

void check_factors(double growth, double backoff, int64_t interval) {
  TERN_CHECK_VALUE(
      growth > 1,
      "[GradScaler] growth_factor is {}; the growth factor must be > 1.0.",
      growth);
  TERN_CHECK_VALUE(
      backoff < 1,
      "[GradScaler] backoff_factor is {}; the backoff factor must be < 1.0.",
      backoff);
  TERN_CHECK_VALUE(
      backoff > 0,
      "[GradScaler] backoff_factor is {}; expected > 0.",
      backoff);
  TERN_CHECK_VALUE(
      interval >= 1,
      "[GradScaler] growth_interval is {}; expected >= 1. For a scale that "
      "never grows take a huge one.",
      interval);
}

void check_scale(const char* name, double scale) {
  TERN_CHECK_VALUE(
      std::isfinite(static_cast<float>(scale)) && static_cast<float>(scale) > 0,
      "[GradScaler] {} is {}; expected a finite float > 0.",
      name,
      scale);
}

void check_options(const GradScalerOptions& options) {
  check_factors(
      options.growth_factor,
      options.backoff_factor,
      options.growth_interval);
  check_scale("init_scale", options.init_scale);
  TERN_CHECK_VALUE(
      0 <= options.min_scale && options.min_scale <= options.max_scale,
      "[GradScaler] min_scale is {} and max_scale {}; expected 0 <= "
      "min_scale <= max_scale.",
      options.min_scale,
      options.max_scale);
}

bool can_be_enabled(const GradScalerOptions& options) {
  if (!options.enabled) return false;
  check_options(options);
  if (!options.device.is_cuda() || torch::cuda::is_available()) {
    return true;
  }
  TORCH_WARN_ONCE(
      "[GradScaler] there is no CUDA device, so the scaler is disabled. For "
      "training on a CPU set .device = torch::kCPU.");
  return false;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options),
      enabled_(can_be_enabled(options)),
      initial_{static_cast<float>(options.init_scale), 0, 0} {}

void GradScaler::set_growth_factor(double factor) {
  check_factors(factor, options_.backoff_factor, options_.growth_interval);
  options_.growth_factor = factor;
}

void GradScaler::set_backoff_factor(double factor) {
  check_factors(options_.growth_factor, factor, options_.growth_interval);
  options_.backoff_factor = factor;
}

void GradScaler::set_growth_interval(int64_t interval) {
  check_factors(options_.growth_factor, options_.backoff_factor, interval);
  options_.growth_interval = interval;
  // `update` compares for equality: a tracker beyond would never grow again.
  initial_.growth_tracker = static_cast<int32_t>(
      std::min<int64_t>(initial_.growth_tracker, interval - 1));
  if (growth_tracker_.defined()) growth_tracker_.clamp_max_(interval - 1);
}

void GradScaler::update(double new_scale) {
  if (!enabled_) return;
  check_scaled("update");
  check_scale("new_scale should be a positive number, but", new_scale);
  // Made where it is wanted: a CUDA graph may not read the host's memory later.
  set_scale(torch::full({}, new_scale, scale_.options()));
}

void GradScaler::update(const torch::Tensor& new_scale) {
  if (!enabled_) return;
  check_scaled("update");
  TERN_CHECK_VALUE(
      new_scale.defined() && new_scale.numel() == 1 &&
          new_scale.is_floating_point() && !new_scale.requires_grad() &&
          new_scale.device().type() == scale_.device().type(),
      "[GradScaler] new_scale should be a number or a 1-element floating "
      "tensor on {} with requires_grad=false.",
      scale_.device().str());
  set_scale(new_scale.reshape({}));
}

void GradScaler::set_scale(const torch::Tensor& new_scale) {
  const torch::NoGradGuard no_grad;
  scale_.copy_(new_scale, /*non_blocking=*/true);
  const torch::Tensor found = combine_all();
  if (found.defined()) count_skips(found);
  records_.clear();
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
  TERN_CHECK_VALUE(
      state.growth_tracker >= 0,
      "[GradScaler] the saved growth_tracker is {}; expected >= 0.",
      state.growth_tracker);
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
  GradScalerState state = state_dict();
  if (state.empty()) return;
  state.for_each([&](const char* name, auto& field) {
    archive.write(name, c10::IValue(field));
  });
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  GradScalerState state;
  c10::IValue value;
  if (archive.try_read("scale", value)) {
    state.for_each([&](const char* name, auto& field) {
      archive.read(name, value);
      field = value.to<std::decay_t<decltype(field)>>();
    });
  }
  load_state_dict(state);
}

}  // namespace tern
