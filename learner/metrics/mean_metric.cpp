#include "tern/learner/metrics/mean_metric.h"

#include <limits>
#include <utility>

namespace tern {

MeanMetric::MeanMetric(std::string name, bool higher_is_better)
    : name_(std::move(name)), higher_is_better_(higher_is_better) {}

void MeanMetric::reset() {
  sum_.reset();
  count_ = 0;
}

torch::Tensor MeanMetric::compute() const {
  if (count_ == 0) {
    return torch::full(
        {},
        std::numeric_limits<double>::quiet_NaN(),
        torch::kDouble);
  }
  return sum_ / static_cast<double>(count_);
}

void MeanMetric::add(const torch::Tensor& sum, int64_t count) {
  const torch::Tensor exact = sum.to(torch::kDouble);
  sum_ = sum_.defined() ? sum_ + exact : exact;
  count_ += count;
}

}  // namespace tern
