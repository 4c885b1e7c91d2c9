#include "tern/learner/metrics/mean_metric.h"

#include <cmath>
#include <limits>
#include <utility>

namespace tern {

MeanMetric::MeanMetric(std::string name, bool higher_is_better)
    : name_(std::move(name)), higher_is_better_(higher_is_better) {}

void MeanMetric::reset() {
  sum_.reset();
  more_.reset();
  count_ = 0;
}

torch::Tensor MeanMetric::compute() const {
  if (more_.defined()) return sum_ / (more_ + static_cast<double>(count_));
  if (count_ == 0) {
    return torch::full(
        {},
        std::numeric_limits<double>::quiet_NaN(),
        torch::kDouble);
  }
  return sum_ / static_cast<double>(count_);
}

void MeanMetric::sync(const AllReduce& all_reduce) {
  torch::Tensor sums = torch::zeros(
      {2},
      sum_.defined() ? sum_.options() : torch::TensorOptions(torch::kDouble));
  if (sum_.defined()) sums[0] = sum_;
  sums[1] = static_cast<double>(count_);
  if (more_.defined()) sums[1] += more_;
  all_reduce(sums);
  sum_ = sums[0];
  more_.reset();
  count_ = std::lround(sums[1].item<double>());
}

void MeanMetric::add(const torch::Tensor& sum, int64_t count) {
  const torch::Tensor exact = sum.to(torch::kDouble);
  sum_ = sum_.defined() ? sum_ + exact : exact;
  count_ += count;
}

void MeanMetric::add(const torch::Tensor& sum, const torch::Tensor& count) {
  add(sum, 0);
  const torch::Tensor exact = count.to(torch::kDouble);
  more_ = more_.defined() ? more_ + exact : exact;
}

}  // namespace tern
