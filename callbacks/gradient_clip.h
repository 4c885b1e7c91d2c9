#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

/// Clips the gradients before each step, in every precision the true ones:
/// those of a scaled loss are unscaled first.
///
///   learn.add<GradientClip>(0.1).fit(3);                // joint L2 norm
///   learn.add<GradientClip>({.max_value = 0.5}).fit(3); // each element
///
/// Nothing is read back from the device. `to_fp16({.clip = ...})` does the same
/// by norm. Default and name are fastai v2's.
class GradientClip final : public Callback {
 public:
  struct Options {
    /// Largest joint L2 norm over all parameters; > 0.
    double max_norm = 1.0;
    /// Set: every element is brought into [-max_value, max_value] instead.
    std::optional<double> max_value = {};
  };

  /// \throws c10::ValueError if a limit is not > 0.
  explicit GradientClip(double max_norm = 1.0);
  explicit GradientClip(Options options);

  void on_step(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientClip; }

  /// The joint norm before the last clipping by norm: 0-dim kFloat on the
  /// device, undefined before it. The next step writes the same memory.
  const torch::Tensor& norm() const { return norm_; }

 private:
  Options options_;
  torch::Tensor norm_;
};

}  // namespace tern
