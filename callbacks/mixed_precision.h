#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/callbacks/loss_scaling.h"

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
/// and `to_bf16` add. Floating inputs become half in on_batch_begin, outputs
/// become fp32 in on_loss_begin; LossScaling does the rest.
class MixedPrecision final : public LossScaling {
 public:
  /// \param dtype  kHalf or kBFloat16.
  /// \throws c10::ValueError for an option out of its range.
  explicit MixedPrecision(
      torch::ScalarType dtype,
      MixedPrecisionOptions options = {});

  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;

  std::string precision_text() const override;
  torch::ScalarType dtype() const { return dtype_; }

 private:
  torch::ScalarType dtype_;
  MixedPrecisionOptions options_;
};

}  // namespace tern
