// Mixed precision in execution order, from the conversion of the model to the
// step: the settings, on_add, then the events of a batch.

#include "tern/callbacks/precision/mixed_precision.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

// ---- Settings ----

MixedPrecision::Settings MixedPrecision::settings_of(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  const char* const where = "MixedPrecision";
  check_positive(where, "loss_scale", options.loss_scale.value_or(1));
  check_positive(where, "init_scale", options.init_scale);
  check_at_least(where, "growth_interval", options.growth_interval, 1);
  check_positive(where, "max_scale", options.max_scale);
  TERN_CHECK_VALUE(
      options.master_weights || dtype == torch::kBFloat16,
      "[MixedPrecision] master_weights is false for fp16, in which most "
      "updates vanish; expected true, or to_bf16.");
  GradScalerOptions scaler;
  // The scale is created on the device of the loss; kCPU skips the CUDA
  // availability check.
  scaler.device = torch::kCPU;
  scaler.enabled = dtype == torch::kHalf;
  scaler.init_scale = options.loss_scale.value_or(options.init_scale);
  scaler.growth_interval = options.growth_interval;
  scaler.min_scale = options.loss_scale ? 0 : 1;
  scaler.max_scale = options.max_scale;
  return {
      .dtype = dtype,
      .scaler = scaler,
      .fixed_scale = options.loss_scale,
      .clip = options.clip,
      .loss_fp32 = options.loss_fp32,
      .keep_fp32 = options.keep_fp32,
      .converts_inputs = std::ranges::count(options.keep_fp32, "input") == 0,
      .flat_masters = options.flat_master,
      .has_masters = options.master_weights};
}

MixedPrecision::Settings MixedPrecision::settings_of(
    torch::Device device,
    const AmpOptions& options) {
  const torch::ScalarType dtype = options.dtype.value_or(
      device.is_cuda() ? torch::kHalf : torch::kBFloat16);
  GradScalerOptions scaler = options.scaler.value_or(
      GradScalerOptions{.enabled = dtype == torch::kHalf});
  scaler.device = device;
  return {
      .dtype = dtype,
      .scaler = scaler,
      .loss_fp32 = options.loss_fp32,
      .keep_fp32 = options.keep_fp32,
      .autocast = true,
      .autocast_in_valid = options.amp_in_valid};
}

MixedPrecision::MixedPrecision(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options)
    : MixedPrecision(settings_of(dtype, options)) {}

MixedPrecision::MixedPrecision(torch::Device device, const AmpOptions& options)
    : MixedPrecision(settings_of(device, options)) {}

MixedPrecision::MixedPrecision(const Settings& settings)
    : settings_(settings), scaler_(settings.scaler) {
  const char* const where = settings.autocast ? "to_amp" : "MixedPrecision";
  TERN_CHECK_VALUE(
      settings.dtype == torch::kHalf || settings.dtype == torch::kBFloat16,
      "[{}] dtype is {}; expected kHalf or kBFloat16.",
      where,
      c10::toString(settings.dtype));
  check_positive(where, "clip", settings.clip.value_or(1));
}

// ---- Adding to a Learner converts the model; removing restores it ----

void MixedPrecision::on_add(Learner& learn) {
  check_only_one(learn.find<PrecisionPolicy>(), *this, "both scale the loss");
  if (parts_of(learn).step.is_parallel) check_parallel();
  kept_ = kept_parameters(
      learn.model(),
      settings_.keep_fp32,
      settings_.autocast ? "to_amp" : "MixedPrecision");
  if (settings_.autocast) return;
  masters_ = std::make_shared<MasterWeights>(
      learn.model(),
      settings_.dtype,
      settings_.flat_masters,
      kept_,
      settings_.has_masters);
  set_master_weights(learn, masters_);
  if (!settings_.has_masters) loop::replace_weight_copies(parts_of(learn));
  if (settings_.converts_inputs) learn.state().input_dtype = settings_.dtype;
}

void MixedPrecision::on_remove(Learner& learn) {
  if (settings_.autocast) return;
  LearnerParts& l = parts_of(learn);
  if (auto* fused = dynamic_cast<AmpAware*>(l.optimizer.get())) {
    fused->set_weights({}, {});
  }
  masters_->restore();
  set_master_weights(learn, nullptr);
  masters_.reset();
  l.state.input_dtype = torch::kFloat;
}

// ---- Start of a fit ----

void MixedPrecision::on_train_begin(Learner& learn) {
  // A fit that ended with an exception may have left an incomplete step.
  scaler_.forget_all();
  is_unscaled_ = false;
  if (scaler_.is_enabled()) learn.state().scaler = &scaler_;
  if (settings_.autocast) return;
  // The optimizer may have been created since the last fit.
  auto* const fused = dynamic_cast<AmpAware*>(&learn.optimizer());
  TERN_CHECK_VALUE(
      settings_.has_masters || fused,
      "[MixedPrecision] without master_weights this optimizer would round "
      "small updates away; expected an optimizer of tern::optim, which rounds "
      "stochastically.");
  if (fused) fused->set_weights(masters_->masters(), masters_->weights());
}

// ---- A batch ----

void MixedPrecision::on_batch_begin(Learner& learn) {
  if (!settings_.converts_inputs) return;
  for (torch::Tensor& input : learn.state().batch_data.inputs) {
    if (input.is_floating_point()) input = input.to(settings_.dtype);
  }
}

void MixedPrecision::forward(
    Learner& learn,
    c10::function_ref<void()> compute) {
  std::optional<AutocastGuard> autocast;
  if (settings_.autocast) {
    if (!learn.state().training && !settings_.autocast_in_valid) {
      return compute();
    }
    autocast.emplace(learn.data().device, settings_.dtype);
  }
  std::optional<KeepFp32Guard> keep_fp32;
  if (!settings_.keep_fp32.empty() || kept_.has_attention()) {
    std::optional<torch::ScalarType> dtype;
    if (!settings_.autocast) dtype = settings_.dtype;
    keep_fp32.emplace(kept_, dtype);
  }
  compute();
}

void outputs_to_fp32(Tensors& outputs) {
  for (torch::Tensor& output : outputs) {
    if (c10::isReducedFloatingType(output.scalar_type())) {
      output = output.to(torch::kFloat);
    }
  }
}

void MixedPrecision::on_loss_begin(Learner& learn) {
  if (settings_.loss_fp32) outputs_to_fp32(learn.state().outputs);
}

void MixedPrecision::on_backward_begin(Learner& learn) {
  learn.state().loss_grad = scaler_.scale(learn.state().loss_grad);
}

// Called when a callback reads the gradients, or by `step` below. A fused
// optimizer does not need it, because its kernel reads scaled 16-bit gradients.
void MixedPrecision::unscale(Learner& learn) {
  if (is_unscaled_) return;
  torch::optim::Optimizer& optimizer = learn.optimizer();
  if (auto* fused = dynamic_cast<AmpAware*>(&optimizer)) {
    fused->move_gradients_to_masters();
  } else if (masters_) {
    masters_->move_gradients_to_masters();
  }
  scaler_.unscale_(optimizer);
  is_unscaled_ = true;
}

void MixedPrecision::abandon(Learner& learn, bool keeps_gradients) {
  scaler_.forget(learn.optimizer());
  if (!std::exchange(is_unscaled_, false) || !keeps_gradients) return;
  const torch::NoGradGuard no_grad;
  // Scaled before rounding to 16 bits, because unscaled gradients would
  // underflow there.
  for (const ModelTensor& p : learn.model().parameters()) {
    const torch::Tensor stepped = masters_ ? masters_->of(p.tensor) : p.tensor;
    const torch::Tensor& gradient = stepped.grad();
    if (!gradient.defined()) continue;
    gradient.copy_(scaler_.scale(gradient));
    // Without master weights the gradient belongs to a 16-bit weight.
    stepped.mutable_grad() = gradient.to(stepped.scalar_type());
  }
  if (masters_) masters_->move_gradients_to_weights();
}

// `step_clipped` reads the norm from scaled gradients, which saves a pass over
// them. Without master weights the gradients are unscaled and clipped first, in
// PyTorch's order.
bool MixedPrecision::clips_within_the_step(
    const torch::optim::Optimizer& optimizer) const {
  const auto* const fused = dynamic_cast<const AmpAware*>(&optimizer);
  if (!settings_.clip || !fused || !masters_ || is_unscaled_) return false;
  const Tensors gradients = fused->gradients();
  return std::ranges::all_of(gradients, [&](const torch::Tensor& gradient) {
    return gradient.device() == gradients[0].device();
  });
}

StepResult MixedPrecision::step(Learner& learn) {
  torch::optim::Optimizer& optimizer = learn.optimizer();
  StepResult result = StepResult::unknown;
  if (clips_within_the_step(optimizer)) {
    result = scaler_.step_clipped(optimizer, *settings_.clip);
  } else {
    // An optimizer without support for master weights needs unscaled fp32
    // gradients on them, and does not write the 16-bit weights itself.
    const bool copies_masters =
        masters_ && dynamic_cast<AmpAware*>(&optimizer) == nullptr;
    if (settings_.clip || copies_masters) unscale(learn);
    if (settings_.clip) clip_grad_norm_(optimizer, *settings_.clip);
    result = scaler_.step(optimizer);
    // Not in on_step_end, because with several optimizers (MultiOptimizer) each
    // one steps separately, and the next forward pass needs the new weights.
    if (copies_masters) masters_->copy_masters_to_weights();
  }
  is_unscaled_ = false;
  learn.state().step_overflowed.reset();
  if (result == StepResult::unknown) {
    const torch::Tensor found_inf = scaler_.found_inf(optimizer);
    if (!found_inf.is_cpu()) {
      learn.state().step_overflowed = found_inf;  // read with the losses
    } else {
      result = *found_inf.const_data_ptr<float>() != 0 ? StepResult::skipped
                                                       : StepResult::stepped;
    }
  }
  return result;
}

void MixedPrecision::on_step_end(Learner&) {
  if (settings_.fixed_scale) {
    scaler_.update(*settings_.fixed_scale);
  } else {
    scaler_.update();
  }
}

// After each batch and not on request, so that the buffers depend only on
// training, not on when they are read.
void MixedPrecision::on_batch_end(Learner&) {
  if (masters_) masters_->follow_buffers();
}

void MixedPrecision::on_train_end(Learner& learn) {
  learn.state().scaler = nullptr;
}

// ---- Checkpoint state: the loss scale ----

StateDict MixedPrecision::state_dict() const {
  if (!scaler_.is_enabled()) return StateDict();
  StateDict result;
  scaler_.state_dict().for_each([&](const char* name, auto field) {
    result.insert(
        name,
        torch::scalar_tensor(
            field,
            c10::CppTypeToScalarType<decltype(field)>::value));
  });
  return result;
}

void MixedPrecision::load_state_dict(const StateDict& state) {
  if (!scaler_.is_enabled()) return;
  TORCH_CHECK_VALUE(
      state.contains("scale"),
      "[MixedPrecision] the state holds no loss scale, because it was saved by "
      "a run without one; expected a state saved with this precision. Resume "
      "with the precision that it was saved with.");
  GradScalerState saved;
  saved.for_each([&](const char* name, auto& field) {
    field = saved_value("MixedPrecision", state, name)
                .item<std::decay_t<decltype(field)>>();
  });
  scaler_.load_state_dict(saved);
}

// ---- Description of the precision ----

double MixedPrecision::loss_scale() const {
  return scaler_.is_enabled() ? scaler_.get_scale() : std::nan("");
}

torch::Tensor MixedPrecision::loss_scale_record() const {
  return scaler_.record();
}

void MixedPrecision::check_parallel() const {
  TERN_CHECK_VALUE(
      settings_.keep_fp32.empty(),
      "[{}] keep_fp32 names layers, but the model computes on several devices; "
      "expected one device. Use to_distributed with one process per device.",
      settings_.autocast ? "to_amp" : "MixedPrecision");
}

std::string MixedPrecision::precision_text() const {
  if (settings_.autocast) return "autocast, fp32 weights";
  return fmt::format(
      "{} model, {}{}",
      settings_.dtype == torch::kHalf ? "fp16" : "bf16",
      settings_.has_masters ? "fp32 master weights" : "stochastic rounding",
      kept_.empty() ? "" : ", some layers in fp32");
}

std::string MixedPrecision::name() const {
  return settings_.autocast ? "Amp" : "MixedPrecision";
}

// ---- Learner::to_fp16, to_bf16, to_amp, to_fp32 ----

Learner& Learner::to_fp16() {
  return to_fp16(MixedPrecisionOptions{});
}

Learner& Learner::to_fp16(const MixedPrecisionOptions& options) {
  check_not_fitting(*this, "Learner::to_fp16");
  if (parts_->data.device.is_cpu() && !options.force_fp16) {
    parts_->options.sink->line(fmt::format(
        "to_fp16: on a CPU this trains in bfloat16, because fp16 is far slower "
        "there than fp32; set {{.force_fp16 = true}} to use fp16 anyway.{}",
        multiplies_bfloat16()
            ? " audit_precision() measures whether bfloat16 is faster than "
              "fp32 for this network."
            : " This processor has no bfloat16 instructions: fp32 is faster."));
    return to_bf16(options);
  }
  const auto callback = std::make_shared<MixedPrecision>(torch::kHalf, options);
  return to_fp32().add(callback);
}

Learner& Learner::to_bf16() {
  return to_bf16(MixedPrecisionOptions{});
}

Learner& Learner::to_bf16(const MixedPrecisionOptions& options) {
  check_not_fitting(*this, "Learner::to_bf16");
  const auto callback =
      std::make_shared<MixedPrecision>(torch::kBFloat16, options);
  return to_fp32().add(callback);
}

Learner& Learner::to_amp() {
  return to_amp(AmpOptions{});
}

Learner& Learner::to_amp(const AmpOptions& options) {
  check_not_fitting(*this, "Learner::to_amp");
  const auto callback =
      std::make_shared<MixedPrecision>(parts_->data.device, options);
  to_fp32();
  parts_->options.loss.check_autocast(parts_->data.device);
  return add(callback);
}

Learner& Learner::to_fp32() {
  check_not_fitting(*this, "Learner::to_fp32");
  if (const auto callback = find<PrecisionPolicy>()) remove(*callback);
  return *this;
}

OptionValues MixedPrecision::option_values() const {
  OptionValues values = {{"dtype", option_text(settings_.dtype)}};
  if (settings_.fixed_scale) {
    values.emplace_back("loss_scale", option_text(*settings_.fixed_scale));
  } else if (settings_.scaler.enabled) {
    values.insert(
        values.end(),
        {{"init_scale", option_text(settings_.scaler.init_scale)},
         {"growth_interval", option_text(settings_.scaler.growth_interval)}});
  }
  values.emplace_back("loss_fp32", option_text(settings_.loss_fp32));
  if (settings_.autocast) {
    values.emplace_back(
        "amp_in_valid",
        option_text(settings_.autocast_in_valid));
  } else {
    values.insert(
        values.end(),
        {{"clip", option_text(settings_.clip)},
         {"flat_master", option_text(settings_.flat_masters)},
         {"master_weights", option_text(settings_.has_masters)}});
  }
  values.emplace_back("keep_fp32", option_text(settings_.keep_fp32));
  return values;
}

}  // namespace tern
