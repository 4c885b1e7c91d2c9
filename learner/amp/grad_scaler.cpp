#include "tern/learner/amp/grad_scaler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <torch/cuda.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize/archive.h>

#include "tern/kernels/check.h"
#include "tern/kernels/optim/unscale_and_check.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/optim/combined_optimizer.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace {

constexpr int64_t kSkipsToWarn = 50;

// Returns the values of a gradient with any layout.
torch::Tensor dense_part(const torch::Tensor& grad) {
  if (grad.layout() != torch::kSparse) return grad;
  // Halves with the same index may overflow only in their sum.
  return grad.scalar_type() == torch::kHalf ? grad.coalesce()._values()
                                            : grad._values();
}

Tensors gradients_read_by(torch::optim::Optimizer& optimizer) {
  if (const auto* amp_aware = dynamic_cast<AmpAware*>(&optimizer)) {
    return amp_aware->gradients();
  }
  return gradients_of(optim::parameters_of(optimizer));
}

// Each part of a combined optimizer steps separately and has its own overflow
// flag.
const torch::optim::Optimizer* stepping(
    const torch::optim::Optimizer& optimizer) {
  const auto* const combined =
      dynamic_cast<const optim::CombinedOptimizer*>(&optimizer);
  return combined ? &combined->active() : &optimizer;
}

torch::Tensor times(const torch::Tensor& output, const torch::Tensor& scale) {
  const bool is_low = output.scalar_type() == torch::kHalf ||
                      output.scalar_type() == torch::kBFloat16;
  return (is_low ? output.to(torch::kFloat) : output) * scale;
}

}  // namespace

// ---- One iteration ----

torch::Tensor GradScaler::scale(const torch::Tensor& output) {
  return enabled_ ? scale(Tensors{output})[0] : output;
}

Tensors GradScaler::scale(const Tensors& outputs) {
  if (!enabled_) return outputs;
  std::unordered_map<torch::Device, torch::Tensor> scales;
  Tensors scaled;
  scaled.reserve(outputs.size());
  for (const torch::Tensor& output : outputs) {
    TORCH_CHECK_TYPE(
        output.defined(),
        "[GradScaler::scale] an output is undefined; outputs must be a Tensor "
        "or an iterable of Tensors.");
    if (!packed_.defined()) create_tensors(output.device());
    torch::Tensor& scale = scales[output.device()];
    if (!scale.defined()) scale = scale_on(output.device());
    scaled.push_back(times(output, scale));
  }
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return;
  check_scaled("unscale_");
  Record& record = records_[stepping(optimizer)];
  TORCH_CHECK(
      record.stage != Stage::unscaled,
      "[GradScaler] unscale_() has already been called on this optimizer since "
      "the last update(). Call it once, before clipping.");
  TORCH_CHECK(
      record.stage != Stage::stepped,
      "[GradScaler] unscale_() is being called after step(). Call it between "
      "backward() and step().");
  check_gradients(optimizer, record, /*unscale=*/true);
  record.stage = Stage::unscaled;
}

StepResult GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!enabled_) {
    optimizer.step();
    return StepResult::stepped;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !dynamic_cast<torch::optim::LBFGS*>(&optimizer),
      "[GradScaler] the optimizer is LBFGS, which needs a closure. Closure use "
      "is not currently supported if GradScaler is enabled. Train in fp32 or "
      "bfloat16, with .enabled = false.");
  check_scaled("step");
  Record& record = records_[stepping(optimizer)];
  TORCH_CHECK(
      record.stage != Stage::stepped,
      "[GradScaler] step() has already been called since the last update(). "
      "Call update() once per iteration, after the step() of the last "
      "optimizer.");
  auto* amp_aware = dynamic_cast<AmpAware*>(&optimizer);
  const bool is_scaled = record.stage == Stage::ready;
  if (is_scaled) {
    check_gradients(optimizer, record, /*unscale=*/amp_aware == nullptr);
  }
  TORCH_CHECK(
      !record.found_inf.empty(),
      "[GradScaler] No inf checks were recorded for this optimizer: none of "
      "its parameters has a gradient. Call backward() before step().");
  const torch::Tensor found = combine(record);
  StepResult result = StepResult::unknown;
  if (amp_aware) {
    amp_aware->step_amp(is_scaled ? scale_ : torch::Tensor(), found);
  } else if (found.item<float>() != 0) {
    result = StepResult::skipped;
  } else {
    optimizer.step();
    result = StepResult::stepped;
  }
  record.stage = Stage::stepped;
  return result;
}

StepResult GradScaler::step_clipped(
    torch::optim::Optimizer& optimizer,
    double max_norm) {
  auto* amp_aware = dynamic_cast<AmpAware*>(&optimizer);
  TORCH_CHECK_VALUE(
      amp_aware,
      "[GradScaler] step_clipped: the optimizer does not read scaled gradients "
      "itself; call unscale_, clip_grad_norm_ and step, or use an optimizer of "
      "tern::optim.");
  TERN_CHECK_VALUE(
      max_norm > 0,
      "[GradScaler] step_clipped: max_norm is {}; expected a number > 0.",
      max_norm);
  const torch::NoGradGuard no_grad;
  const Tensors gradients = amp_aware->gradients();
  TORCH_CHECK(
      !enabled_ || !gradients.empty(),
      "[GradScaler] step_clipped: no parameter has a gradient, so there is "
      "nothing to step. Call it after backward().");
  const torch::Tensor norm = joint_norm(gradients);
  if (!enabled_) {
    amp_aware->step_amp(clip_coefficient(norm, max_norm).reciprocal(), {});
    return StepResult::stepped;
  }
  check_scaled("step_clipped");
  Record& record = records_[stepping(optimizer)];
  TORCH_CHECK(
      record.stage == Stage::ready,
      "[GradScaler] step_clipped() is being called after unscale_() or step(). "
      "Call it alone, between backward() and update().");
  const torch::Tensor found = norm.isfinite().logical_not().to(torch::kFloat);
  const torch::Tensor scale = scale_.to(norm.device(), /*non_blocking=*/true);
  amp_aware->step_amp(scale / clip_coefficient(norm / scale, max_norm), found);
  record.found_inf[norm.device()] = found;
  record.stage = Stage::stepped;
  return StepResult::unknown;
}

void GradScaler::update() {
  if (!enabled_) return;
  check_scaled("update");
  const torch::Tensor found = combine_all();
  TORCH_CHECK(
      found.defined(),
      "[GradScaler] No inf checks were recorded prior to update. Call step() "
      "before update().");
  const torch::NoGradGuard no_grad;
  at::_amp_update_scale_(
      scale_,
      growth_tracker_,
      found,
      options_.growth_factor,
      options_.backoff_factor,
      options_.growth_interval);
  if (options_.min_scale > 0 || std::isfinite(options_.max_scale)) {
    scale_.clamp_(options_.min_scale, options_.max_scale);
  }
  count_skips(found);
  records_.clear();
}

void GradScaler::forget(const torch::optim::Optimizer& optimizer) {
  records_.erase(stepping(optimizer));
}

void GradScaler::forget_all() {
  records_.clear();
}

void GradScaler::check_scaled(const char* method) const {
  TORCH_CHECK(
      packed_.defined(),
      fmt::format(
          "[GradScaler] {} was called before scale(). Call "
          "scaler.scale(loss).backward() first.",
          method));
}

// ---- Gradients and flags ----

void GradScaler::check_gradients(
    torch::optim::Optimizer& optimizer,
    Record& record,
    bool unscale) {
  const torch::NoGradGuard no_grad;
  std::unordered_map<torch::Device, Tensors> by_device;
  // Checks all gradients before changing any, so that an error changes none.
  for (const torch::Tensor& grad : gradients_read_by(optimizer)) {
    TORCH_CHECK_VALUE(
        !unscale || grad.scalar_type() != torch::kHalf,
        "[GradScaler] Attempting to unscale FP16 gradients. Small ones would "
        "be lost; keep the parameters in fp32, or use tern::optim with fp32 "
        "master weights and call move_gradients_to_masters() first.");
    by_device[grad.device()].push_back(dense_part(grad));
  }
  torch::Tensor inverse;
  if (unscale) {
    inverse = scale_.to(torch::kDouble).reciprocal().to(torch::kFloat);
  }
  for (const auto& [device, grads] : by_device) {
    torch::Tensor& found = record.found_inf[device];
    found = torch::zeros({}, scale_.options().device(device));
    if (unscale) {
      unscale_and_check_(
          grads,
          inverse.to(device, /*non_blocking=*/true),
          found);
    } else {
      check_finite(grads, found);
    }
  }
}

torch::Tensor GradScaler::found_inf(
    const torch::optim::Optimizer& optimizer) const {
  const auto record = records_.find(stepping(optimizer));
  TORCH_CHECK(
      record != records_.end() && !record->second.found_inf.empty(),
      "[GradScaler] No inf checks were recorded for this optimizer. Call "
      "found_inf() between unscale_() or step() and update().");
  return combine(record->second);
}

torch::Tensor GradScaler::combine(const Record& record, torch::Tensor found)
    const {
  // The maximum, not the sum: two overflows count as one.
  for (const auto& [device, flag] : record.found_inf) {
    const auto here = flag.to(scale_.device(), /*non_blocking=*/true);
    found = found.defined() ? torch::maximum(found, here) : here;
  }
  return found;
}

torch::Tensor GradScaler::combine_all() const {
  torch::Tensor found;
  for (const auto& [optimizer, record] : records_) {
    found = combine(record, found);
  }
  return found;
}

void GradScaler::count_skips(const torch::Tensor& found) {
  // skips = found ? skips + 1 : 0, in one operation.
  at::addcmul_out(skips_, found, skips_, found);
  if (!is_recording_) watch_skips();
}

void GradScaler::watch_skips() {
  if (!packed_.defined()) return;
  ++updates_;
  if (skips_.is_cpu()) {
    warn_of_skips(static_cast<int64_t>(*skips_.const_data_ptr<float>()));
    return;
  }
  if (updates_ % kSkipsToWarn != 0) return;
  // Does not synchronize: the copy to the mailbox was started many updates ago.
  warn_of_skips(static_cast<int64_t>(*skips_mailbox_.const_data_ptr<float>()));
  skips_mailbox_.copy_(skips_, /*non_blocking=*/true);
}

void GradScaler::warn_of_skips(int64_t skips) const {
  if (skips < kSkipsToWarn) {
    has_warned_ = false;
    return;
  }
  if (has_warned_) return;
  has_warned_ = true;
  TORCH_WARN(
      "[GradScaler] ",
      skips,
      " updates in a row found a gradient that is not finite, so no step is "
      "taken. Likely causes: NaN or infinity in the data; a loss that divides "
      "by 0 or takes the logarithm of 0; weights that became NaN because the "
      "learning rate was too high. Check whether the loss of one batch is "
      "finite without the scaler.");
}

// ---- Values on the device ----

void GradScaler::create_tensors(torch::Device device) {
  const torch::NoGradGuard no_grad;
  packed_ = torch::empty({3}, torch::kFloat);
  float* packed = packed_.mutable_data_ptr<float>();
  packed[0] = initial_.scale;
  packed[1] = std::bit_cast<float>(initial_.growth_tracker);
  packed[2] = initial_.skips;
  packed_ = packed_.to(device);
  scale_ = packed_.select(0, 0);
  growth_tracker_ = packed_.view(torch::kInt).select(0, 1);
  skips_ = packed_.select(0, 2);
  if (device.is_cuda() && !skips_mailbox_.defined()) {
    skips_mailbox_ = torch::zeros(
        {},
        torch::TensorOptions(torch::kFloat).pinned_memory(true));
  }
}

torch::Tensor GradScaler::scale_on(torch::Device device) const {
  return scale_.to(device, /*non_blocking=*/true);
}

GradScaler::Values GradScaler::values() const {
  if (!packed_.defined()) return initial_;
  const torch::Tensor host = packed_.cpu();
  const float* packed = host.const_data_ptr<float>();
  warn_of_skips(static_cast<int64_t>(packed[2]));
  return {packed[0], std::bit_cast<int32_t>(packed[1]), packed[2]};
}

double GradScaler::get_scale() const {
  return enabled_ ? values().scale : 1.0;
}

int64_t GradScaler::growth_tracker() const {
  return enabled_ ? values().growth_tracker : 0;
}

int64_t GradScaler::consecutive_skips() const {
  return enabled_ ? static_cast<int64_t>(values().skips) : 0;
}

torch::Tensor GradScaler::record() const {
  if (!enabled_ || !packed_.defined()) return {};
  return torch::stack({scale_, skips_});
}

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
      "never grows use a very large interval.",
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
  // `update` compares for equality, so the scale would never grow again if the
  // tracker were beyond the interval.
  initial_.growth_tracker = static_cast<int32_t>(
      std::min<int64_t>(initial_.growth_tracker, interval - 1));
  if (growth_tracker_.defined()) growth_tracker_.clamp_max_(interval - 1);
}

void GradScaler::update(double new_scale) {
  if (!enabled_) return;
  check_scaled("update");
  check_scale("new_scale should be a positive number, but", new_scale);
  // Created on the device, because a CUDA graph must not read host memory
  // later.
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
