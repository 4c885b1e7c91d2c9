#pragma once

#include <cstdint>
#include <optional>

namespace tern {

/// Options of `Learner::to_fp16`, which trains a half or bfloat16 model with
/// fp32 master weights and converts floating inputs; names and defaults of
/// fastai v1's, where it has them.
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

}  // namespace tern
