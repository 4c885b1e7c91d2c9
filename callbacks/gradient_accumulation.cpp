#include "tern/callbacks/gradient_accumulation.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/only_one.h"
#include "tern/learner/learner.h"

namespace tern {

GradientAccumulation::GradientAccumulation(Options options)
    : options_(options) {
  TORCH_CHECK_VALUE(
      (options.batches >= 1 && options.samples == 0) ||
          (options.samples >= 1 && options.batches == 0),
      fmt::format(
          "[GradientAccumulation] batches is {} and samples is {}; expected "
          "one of them >= 1 and the other unset.",
          options.batches,
          options.samples));
}

void GradientAccumulation::on_add(Learner& learn) {
  check_only_one<GradientAccumulation>(
      learn,
      *this,
      "both accumulate gradients");
}

void GradientAccumulation::on_train_begin(Learner& learn) {
  learn.state().accumulation = {
      .batches = options_.batches,
      .samples = options_.samples};
}

}  // namespace tern
