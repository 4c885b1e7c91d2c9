#pragma once

#include <functional>
#include <string>
#include <utility>

#include <torch/types.h>

#include "tern/learner/metrics/mean_metric.h"

/// Means that a function computes. Private to learner/metrics/.
namespace tern {

/// Both 0-dim and on the device.
struct SumAndCount {
  SumAndCount(torch::Tensor sum, torch::Tensor count)
      : sum(std::move(sum)), count(std::move(count)) {}
  SumAndCount(const torch::Tensor& sum, int64_t count)
      : sum(sum), count(torch::full_like(sum, count)) {}
  torch::Tensor sum, count;
};

class MeanOf : public MeanMetric {
 public:
  using Function = std::function<
      SumAndCount(const torch::Tensor& pred, const torch::Tensor& target)>;

  MeanOf(std::string name, bool higher_is_better, Function count)
      : MeanMetric(std::move(name), higher_is_better),
        count_(std::move(count)) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const auto [sum, count] = count_(outputs[0], targets[0]);
    add(sum, count);
  }

 private:
  Function count_;
};

}  // namespace tern
