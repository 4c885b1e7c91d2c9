#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/learner/callback.h"
#include "tern/learner/grad_scaler.h"
#include "tern/learner/train_state.h"

namespace tern {

/// Options of `Learner::to_fp16`; names and defaults of fastai v1's, where it
/// has them.
struct MixedPrecisionOptions {
  // ---- How the loss scale moves (bfloat16 uses none) ----

  /// A fixed loss scale, for example 512; a step that overflows is skipped.
  /// Unset: the scale finds itself, as the fields below say.
  std::optional<double> loss_scale = {};
  /// First dynamic scale. Too high costs a few skipped steps; too low loses
  /// small gradients without a sign, so start high.
  double init_scale = 65536;
  /// Steps without overflow before the scale doubles; an overflow halves it.
  int64_t max_noskip = 1000;
  /// The scale never grows above this, nor falls below 1.
  double max_scale = 16777216;

  // ---- What is computed ----

  /// Scales all gradients down so that their joint L2 norm, over all groups, is
  /// at most this.
  std::optional<double> clip = {};
  /// The loss sees the outputs in fp32.
  bool loss_fp32 = true;
  /// Keeps the fp32 masters in one block of memory.
  bool flat_master = false;
  /// On a CPU, to_fp16 uses bfloat16, because fp16 convolutions are 50 to 100
  /// times slower there than fp32 ones. True insists on fp16.
  bool force_fp16 = false;
};

/// Trains a half or bfloat16 model with fp32 masters; what `Learner::to_fp16`
/// and `to_bf16` add.
///
/// | event            | what happens                                          |
/// |------------------|-------------------------------------------------------|
/// | on_batch_begin   | floating inputs become half                           |
/// | on_loss_begin    | outputs become fp32                                   |
/// | on_backward_begin| loss_grad is multiplied by the loss scale             |
/// | on_step          | the optimizer's step is replaced: check for overflow, |
/// |                  | unscale, clip, step the masters or skip, write back   |
/// | on_step_end      | the loss scale moves                                  |
///
/// With a fused optimizer (tern::optim) no step waits for the device.
class MixedPrecision final : public Callback {
 public:
  /// \param dtype  kHalf or kBFloat16.
  /// \throws c10::ValueError for an option out of its range.
  MixedPrecision(torch::ScalarType dtype, MixedPrecisionOptions options = {});

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_step(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  int order() const override { return callback_order::kMixedPrecision; }

  torch::ScalarType dtype() const { return dtype_; }
  /// The loss scaler; disabled for bfloat16.
  GradScaler& scaler() { return scaler_; }

 private:
  StepResult step(Learner& learn, torch::optim::Optimizer& optimizer);

  torch::ScalarType dtype_;
  MixedPrecisionOptions options_;
  GradScaler scaler_;
  bool stepped_ = false;
};

}  // namespace tern
