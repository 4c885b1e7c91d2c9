#include "tern/callbacks/gradient_clip.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/precision/clip_grad.h"

namespace tern {

GradientClip::GradientClip(double max_norm)
    : GradientClip(Options{.max_norm = max_norm}) {}

GradientClip::GradientClip(Options options) : options_(options) {
  const double limit = options.max_value.value_or(options.max_norm);
  TORCH_CHECK_VALUE(
      limit > 0,
      fmt::format(
          "[GradientClip] {} is {}; expected a number > 0.",
          options.max_value ? "max_value" : "max_norm",
          limit));
}

void GradientClip::on_step(Learner& learn) {
  learn.gradients();  // unscaled from here on
  if (options_.max_value) {
    clip_grad_value_(learn.optimizer(), *options_.max_value);
  } else {
    const torch::Tensor norm =
        clip_grad_norm_(learn.optimizer(), options_.max_norm);
    // In place: a replayed step writes where the recorded one did.
    const bool fits = norm_.defined() && norm_.device() == norm.device();
    norm_ = fits ? norm_.copy_(norm) : norm;
  }
}

}  // namespace tern
