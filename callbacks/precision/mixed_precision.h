#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/callbacks/precision/loss_scaling.h"

namespace tern {

/// Options of `Learner::to_fp16`; names and defaults of fastai v1's, where it
/// has them.
struct MixedPrecisionOptions {
  // ---- Loss scale (bfloat16 uses none) ----

  /// A fixed loss scale, for example 512; a step that overflows is skipped.
  /// Unset: dynamic, as the fields below say.
  std::optional<double> loss_scale = {};
  /// Initial dynamic scale. Too high costs a few skipped steps; too low
  /// silently loses small gradients, so start high.
  double init_scale = 65536;
  /// Steps without overflow before the scale doubles; an overflow halves it.
  int64_t growth_interval = 1000;
  /// Upper bound of the scale; the lower bound is 1.
  double max_scale = 16777216;

  /// Scales all gradients down so that their joint L2 norm, over all groups, is
  /// at most this.
  std::optional<double> clip = {};
  /// Converts the outputs to fp32 for the loss.
  bool loss_fp32 = true;
  /// Keeps the fp32 master weights in one block of memory.
  bool flat_master = false;
  /// On a CPU, to_fp16 uses bfloat16, because fp16 convolutions are 50 to 100
  /// times slower there than fp32 ones. True insists on fp16.
  bool force_fp16 = false;
};

/// Trains a half or bfloat16 model with fp32 master weights; what
/// `Learner::to_fp16` and `to_bf16` add. Converts floating inputs to half in
/// on_batch_begin; LossScaling does the rest.
class MixedPrecision final : public LossScaling {
 public:
  /// \param dtype  kHalf or kBFloat16.
  /// \throws c10::ValueError for an option out of its range.
  explicit MixedPrecision(
      torch::ScalarType dtype,
      const MixedPrecisionOptions& options = {});

  void on_batch_begin(Learner& learn) override;
  std::string precision_text() const override;

 private:
  static Settings settings_for(
      torch::ScalarType dtype,
      const MixedPrecisionOptions& options);
};

}  // namespace tern
