#include "tern/learner/metric.h"

#include <fmt/format.h>

#include "tern/kernels/check.h"

namespace tern {

Metric Metric::fresh_copy() const {
  if (!copy_) return *this;
  Metric result = *this;
  result.impl_ = copy_(*impl_);
  result.reset();
  return result;
}

void Metric::update(const Tensors& outputs, const Tensors& targets) {
  TERN_CHECK_VALUE(
      !outputs.empty() && outputs[0].defined() && !targets.empty() &&
          targets[0].defined(),
      "[{}] {} outputs and {} targets; expected at least one defined tensor of "
      "each. Leave metrics out for data without targets.",
      name(),
      outputs.size(),
      targets.size());
  const torch::NoGradGuard no_grad;
  impl_->update(outputs, targets);
}

torch::Tensor Metric::compute() const {
  const torch::NoGradGuard no_grad;
  return impl_->compute();
}

}  // namespace tern
