#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <torch/types.h>

#include "tern/learner/metric.h"

namespace tern {

/// Of a batch; both 0-dim and on the device, of any type.
struct SumAndCount {
  SumAndCount(torch::Tensor sum, torch::Tensor count)
      : sum(std::move(sum)), count(std::move(count)) {}
  SumAndCount(const torch::Tensor& sum, int64_t count)
      : sum(sum), count(torch::full_like(sum, count)) {}
  torch::Tensor sum, count;
};

/// A sum over elements divided by their number. Both stay on the device, in
/// kDouble.
class MeanOf : public MetricImpl {
 public:
  using Function = std::function<
      SumAndCount(const torch::Tensor& pred, const torch::Tensor& target)>;

  MeanOf(std::string name, bool higher_is_better, Function count)
      : name_(std::move(name)),
        higher_is_better_(higher_is_better),
        function_(std::move(count)) {}

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return higher_is_better_; }
  void reset() override { sums_.reset(); }
  void update(const Tensors& outputs, const Tensors& targets) override;
  torch::Tensor compute() const override;
  void sync(const AllReduce& all_reduce) override;

 private:
  std::string name_;
  bool higher_is_better_;
  Function function_;
  torch::Tensor sums_;  // [2] kDouble: sum and count
};

}  // namespace tern
