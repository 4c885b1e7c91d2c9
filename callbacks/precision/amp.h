#pragma once

#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/amp/grad_scaler.h"

namespace tern {

/// Options of `Learner::to_amp`, which trains with autocast and a GradScaler
/// while the weights stay in fp32: forward and loss run inside an
/// AutocastGuard, backward and step outside. The defaults match `torch.amp`. To
/// clip, add a GradientClip, which sees unscaled gradients.
struct AmpOptions {
  /// kHalf or kBFloat16. Unset: kHalf on CUDA, kBFloat16 on a CPU.
  std::optional<torch::ScalarType> dtype = {};
  /// The loss scale. Unset: GradScaler's defaults with kHalf; no scaling with
  /// kBFloat16, which has fp32's range. `GradScalerOptions::device` is ignored.
  std::optional<GradScalerOptions> scaler = {};
  /// Converts the outputs to fp32 for the loss, even for operations that
  /// autocast would run in 16 bits.
  bool loss_fp32 = true;
  /// False: evaluation and inference run in fp32.
  bool amp_in_valid = true;
  /// Like MixedPrecisionOptions::keep_fp32.
  std::vector<std::string> keep_fp32 = {};
};

}  // namespace tern
