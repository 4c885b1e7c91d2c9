#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/amp/keep_fp32.h"
#include "tern/learner/callback.h"
#include "tern/learner/extension.h"
#include "tern/learner/train_state.h"

namespace tern {

/// Converts those in 16 bits, for the loss.
void outputs_to_fp32(Tensors& outputs);

/// Base of the 16-bit callbacks: scales the loss for backward, and makes the
/// optimizer's step with a GradScaler, which skips it when a gradient
/// overflowed.
///
/// | event             | what happens                                         |
/// |-------------------|------------------------------------------------------|
/// | on_loss_begin     | outputs become fp32                                  |
/// | on_backward_begin | loss_grad is multiplied by the loss scale            |
/// | the step          | check for overflow, unscale, clip, step or skip,     |
/// |                   | write the 16-bit weights                             |
/// | on_step_end       | the loss scale is updated                            |
///
/// With a fused optimizer (tern::optim) no step waits for the device. The loss
/// scale changes at steps only, not while gradients are accumulated.
class LossScaling : public Callback, public PrecisionPolicy {
 public:
  struct Settings {
    torch::ScalarType dtype;  // kHalf or kBFloat16
    GradScalerOptions scaler = {};
    std::optional<double> fixed_scale = {};  // unset: dynamic
    std::optional<double> clip = {};  // largest joint L2 norm of the gradients
    bool loss_fp32 = true;            // converts 16-bit outputs for the loss
    std::vector<std::string> keep_fp32 = {};
  };

  /// With the kept layers in fp32.
  void forward(Learner& learn, c10::function_ref<void()> compute) override;
  void unscale(Learner& learn) override;
  void abandon(Learner& learn, bool keeps_gradients) override;
  StepResult step(Learner& learn) override;
  double loss_scale() const override;
  torch::Tensor loss_scale_record() const override;
  /// \throws c10::ValueError with `keep_fp32`.
  void check_parallel() const override;

  /// \throws c10::ValueError beside another one, or if `keep_fp32` names a
  ///         module that the model has not.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kMixedPrecision; }

  /// Disabled when there is no loss scale: in bfloat16.
  GradScaler& scaler() { return scaler_; }
  torch::ScalarType dtype() const { return settings_.dtype; }

 protected:
  /// \throws c10::ValueError for another dtype, or a clip that is not > 0.
  LossScaling(const char* where, const Settings& settings);

  const KeptParameters& kept() const { return kept_; }

 private:
  StepResult read_on_cpu(const torch::optim::Optimizer& optimizer) const;

  GradScaler scaler_;
  const char* where_;
  Settings settings_;
  KeptParameters kept_;
  bool is_unscaled_ = false;
};

}  // namespace tern
