#include "tern/learner/metrics/mean_metric.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"

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
  // On the device of the other ranks' sums: NCCL does not reduce CPU tensors.
  const torch::Tensor sum = all_reduce.or_zeros(sum_);
  if (!sum.defined()) return;
  torch::Tensor sums = torch::zeros({2}, sum.options());
  sums[0] = sum;
  sums[1] = static_cast<double>(count_);
  if (more_.defined()) sums[1] += more_;
  all_reduce(sums);
  sum_ = sums[0];
  more_.reset();
  count_ = std::lround(sums[1].item<double>());
}

std::optional<StateDict> MeanMetric::state_dict() const {
  StateDict state;
  if (!sum_.defined()) return state;
  state.insert("sum", sum_);
  state.insert("count", torch::scalar_tensor(count_, torch::kLong));
  if (more_.defined()) state.insert("more", more_);
  return state;
}

void MeanMetric::load_state_dict(const StateDict& state) {
  reset();
  if (state.is_empty()) return;
  sum_ = state["sum"].clone();
  count_ = state["count"].item<int64_t>();
  if (state.contains("more")) more_ = state["more"].clone();
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

namespace {

class FunctionMetric final : public MeanMetric {
 public:
  FunctionMetric(std::string name, Metric::Function fn, bool higher_is_better)
      : MeanMetric(std::move(name), higher_is_better), fn_(std::move(fn)) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const torch::Tensor& pred = outputs[0];
    const int64_t samples = pred.dim() == 0 ? 1 : pred.size(0);
    const torch::Tensor values = fn_(pred, targets[0]);
    const bool is_mean = values.defined() && values.dim() == 0;
    TERN_CHECK_VALUE(
        is_mean || (values.defined() && values.size(0) == samples),
        "[{}] the function returned {} for {} samples; expected [{}] or a "
        "0-dim mean. Reduce over all dimensions except the first.",
        name(),
        values.defined() ? fmt::format("[{}]", fmt::join(values.sizes(), ", "))
                         : "an undefined tensor",
        samples,
        samples);
    if (is_mean) {
      add(values.to(torch::kDouble) * static_cast<double>(samples), samples);
    } else {
      add(values.sum(torch::kDouble), values.numel());
    }
  }

 private:
  Metric::Function fn_;
};

}  // namespace

Metric::Metric(std::string name, Function fn, bool higher_is_better) {
  TERN_CHECK_VALUE(
      !name.empty() && fn,
      "[Metric] name is \"{}\" and the function is {}; expected both.",
      name,
      fn ? "set" : "empty");
  *this = std::make_shared<FunctionMetric>(
      std::move(name),
      std::move(fn),
      higher_is_better);
}

}  // namespace tern
