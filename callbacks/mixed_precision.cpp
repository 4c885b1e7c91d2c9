#include "tern/callbacks/mixed_precision.h"

#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/amp_aware.h"
#include "tern/learner/clip_grad.h"
#include "tern/learner/learner.h"
#include "tern/learner/master_weights.h"

namespace tern {

namespace {

GradScalerOptions scaler_options(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  GradScalerOptions scaler;
  // The scale lives where the loss is; this only says not to ask for a GPU.
  scaler.device = torch::kCPU;
  scaler.enabled = dtype == torch::kHalf;
  scaler.init_scale = options.loss_scale.value_or(options.init_scale);
  scaler.growth_interval = options.max_noskip;
  scaler.min_scale = options.loss_scale ? 0 : 1;
  scaler.max_scale = options.max_scale;
  return scaler;
}

void check(const MixedPrecisionOptions& options) {
  const auto positive = [](const char* name, double value) {
    TORCH_CHECK_VALUE(
        std::isfinite(value) && value > 0,
        fmt::format(
            "[MixedPrecision] {} is {}; expected a finite number > 0.",
            name,
            value));
  };
  positive("loss_scale", options.loss_scale.value_or(1));
  positive("init_scale", options.init_scale);
  positive("max_noskip", static_cast<double>(options.max_noskip));
  positive("max_scale", options.max_scale);
  positive("clip", options.clip.value_or(1));
}

Tensors parameters_of(torch::optim::Optimizer& optimizer) {
  Tensors all;
  for (const auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

}  // namespace

MixedPrecision::MixedPrecision(
    torch::ScalarType dtype,
    MixedPrecisionOptions options)
    : dtype_(dtype),
      options_(std::move(options)),
      scaler_((check(options_), scaler_options(dtype, options_))) {
  TORCH_CHECK_VALUE(
      dtype == torch::kHalf || dtype == torch::kBFloat16,
      fmt::format(
          "[MixedPrecision] dtype is {}; expected kHalf or kBFloat16.",
          c10::toString(dtype)));
}

void MixedPrecision::on_train_begin(Learner& learn) {
  // A fit that ended by an exception may have left a step half done.
  scaler_.forget(learn.optimizer());
  // The optimizer may have been made since the last fit.
  if (auto* fused = dynamic_cast<AmpAware*>(&learn.optimizer())) {
    fused->set_weights(learn.masters()->masters(), learn.masters()->weights());
  }
}

void MixedPrecision::on_batch_begin(Learner& learn) {
  for (torch::Tensor& input : learn.state().batch_data.inputs) {
    if (input.is_floating_point()) input = input.to(dtype_);
  }
}

void MixedPrecision::on_loss_begin(Learner& learn) {
  if (!options_.loss_fp32) return;
  for (torch::Tensor& output : learn.state().outputs) {
    if (output.is_floating_point()) output = output.to(torch::kFloat);
  }
}

void MixedPrecision::on_backward_begin(Learner& learn) {
  learn.state().loss_grad = scaler_.scale(learn.state().loss_grad);
}

void MixedPrecision::on_step(Learner& learn) {
  stepped_ = false;
  learn.state().stepper = [this, &learn](torch::optim::Optimizer& optimizer) {
    return step(learn, optimizer);
  };
}

StepResult MixedPrecision::step(
    Learner& learn,
    torch::optim::Optimizer& optimizer) {
  const bool is_fused = dynamic_cast<AmpAware*>(&optimizer) != nullptr;
  MasterWeights& masters = *learn.masters();
  if (!is_fused) masters.copy_gradients_to_masters();
  if (options_.clip) {
    // Clipping wants fp32 gradients in one place; that costs one more pass.
    if (auto* fused = dynamic_cast<AmpAware*>(&optimizer)) {
      fused->move_gradients_to_masters();
    }
    scaler_.unscale_(optimizer);
    clip_grad_norm_(parameters_of(optimizer), *options_.clip);
  }
  const StepResult result = scaler_.step(optimizer);
  if (!is_fused) masters.copy_masters_to_weights();
  stepped_ = true;
  return result;
}

void MixedPrecision::on_step_end(Learner& learn) {
  learn.state().stepper = nullptr;
  if (!stepped_) return;
  if (options_.loss_scale) {
    scaler_.update(*options_.loss_scale);
  } else {
    scaler_.update();
  }
}

namespace {

MixedPrecision* find(const Learner& learn) {
  for (const auto& callback : learn.callbacks()) {
    if (auto* found = dynamic_cast<MixedPrecision*>(callback.get())) {
      return found;
    }
  }
  return nullptr;
}

void convert(
    Learner& learn,
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  const auto callback = std::make_shared<MixedPrecision>(dtype, options);
  learn.to_fp32();
  learn.set_masters(std::make_shared<MasterWeights>(
      learn.model(),
      dtype,
      options.flat_master));
  learn.state().input_dtype = dtype;
  learn.add(callback);
}

}  // namespace

Learner& Learner::to_fp16() {
  return to_fp16(MixedPrecisionOptions{});
}

Learner& Learner::to_fp16(const MixedPrecisionOptions& options) {
  if (data_.device.is_cpu() && !options.force_fp16) {
    sink().line(
        "to_fp16: on a CPU this trains in bfloat16, because fp16 is far slower "
        "there than fp32; {.force_fp16 = true} insists.");
    convert(*this, torch::kBFloat16, options);
  } else {
    convert(*this, torch::kHalf, options);
  }
  return *this;
}

Learner& Learner::to_bf16() {
  convert(*this, torch::kBFloat16, {});
  return *this;
}

Learner& Learner::to_fp32() {
  TORCH_CHECK(
      !is_fitting_,
      "[Learner] the precision cannot change while fit runs; call it before or "
      "after.");
  if (MixedPrecision* callback = find(*this)) remove(*callback);
  if (masters_) {
    if (auto* fused = dynamic_cast<AmpAware*>(optimizer_.get())) {
      fused->set_weights({}, {});
    }
    const std::shared_ptr<MasterWeights> masters = masters_;
    masters->restore();
    set_masters(nullptr);
  }
  state_.input_dtype = torch::kFloat;
  state_.stepper = nullptr;
  return *this;
}

}  // namespace tern
