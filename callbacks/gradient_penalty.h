#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Adds the L2 norm of the loss's gradient, over all parameters, to the loss
/// that backward sees: PyTorch's gradient penalty, with a scaled loss or
/// without. Costs a second, differentiable backward pass.
///
///   learn.add<GradientPenalty>(0.1).fit(3);
///
/// The table and the Recorder go on showing the loss without the penalty.
class GradientPenalty final : public Callback {
 public:
  /// \param weight  Factor of the norm, finite.
  explicit GradientPenalty(double weight = 1.0);

  void on_backward_begin(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientPenalty; }

 private:
  double weight_;
};

}  // namespace tern
