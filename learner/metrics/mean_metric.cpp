#include "tern/learner/metrics/mean_metric.h"

#include <cmath>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {

void MeanOf::update(const Tensors& outputs, const Tensors& targets) {
  const auto [sum, count] = function_(outputs[0], targets[0]);
  const torch::Tensor batch =
      torch::stack({sum.to(torch::kDouble), count.to(torch::kDouble)});
  sums_ = sums_.defined() ? sums_ + batch : batch;
}

torch::Tensor MeanOf::compute() const {
  if (!sums_.defined()) return torch::full({}, std::nan(""), torch::kDouble);
  return sums_[0] / sums_[1];
}

void MeanOf::sync(const AllReduce& all_reduce) {
  // A copy: what compute() has given does not change.
  sums_ = sums_.defined() ? sums_.clone() : torch::zeros({2}, torch::kDouble);
  all_reduce(sums_);
}

Metric::Metric(std::string name, Function fn, bool higher_is_better) {
  TERN_CHECK_VALUE(
      !name.empty() && fn,
      "[Metric] name is \"{}\" and the function is {}; expected both.",
      name,
      fn ? "set" : "empty");
  const auto count = [name, fn = std::move(fn)](
                         const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    const int64_t samples = pred.dim() == 0 ? 1 : pred.size(0);
    const torch::Tensor values = fn(pred, target);
    const bool is_mean = values.defined() && values.dim() == 0;
    TERN_CHECK_VALUE(
        is_mean || (values.defined() && values.size(0) == samples),
        "[{}] the function gave {} for {} samples; expected [{}] or a 0-dim "
        "mean. Reduce over every dimension but the first.",
        name,
        values.defined() ? fmt::format("[{}]", fmt::join(values.sizes(), ", "))
                         : "an undefined tensor",
        samples,
        samples);
    if (!is_mean) return {values.sum(torch::kDouble), values.numel()};
    return {values.to(torch::kDouble) * static_cast<double>(samples), samples};
  };
  *this = std::make_shared<MeanOf>(std::move(name), higher_is_better, count);
}

}  // namespace tern
