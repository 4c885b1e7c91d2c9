#include "tern/learner/metrics/mean_metric.h"

#include <cmath>
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

void MeanMetric::join_ranks(const AddUp& add_up) {
  torch::Tensor sums = torch::zeros(
      {2},
      sum_.defined() ? sum_.options() : torch::TensorOptions(torch::kDouble));
  if (sum_.defined()) sums[0] = sum_;
  sums[1] = static_cast<double>(count_);
  add_up(sums);
  sum_ = sums[0];
  count_ = std::lround(sums[1].item<double>());
}

void MeanMetric::add(const torch::Tensor& sum, int64_t count) {
  const torch::Tensor exact = sum.to(torch::kDouble);
  sum_ = sum_.defined() ? sum_ + exact : exact;
  count_ += count;
}

}  // namespace tern
