#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

#include "tern/learner/metric.h"

namespace tern {

/// Base of metrics that divide a sum over elements by their number. The sum
/// stays on the device, in kDouble, as does a number of elements that only the
/// device knows.
class MeanMetric : public MetricImpl {
 public:
  MeanMetric(std::string name, bool higher_is_better);

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return higher_is_better_; }
  void reset() override;
  torch::Tensor compute() const override;
  void sync(const AllReduce& all_reduce) override;
  std::optional<StateDict> state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 protected:
  /// \param sum  0-dim, any dtype; the sum over `count` elements.
  void add(const torch::Tensor& sum, int64_t count);
  /// \param count  0-dim integer on the same device.
  void add(const torch::Tensor& sum, const torch::Tensor& count);

 private:
  std::string name_;
  bool higher_is_better_;
  torch::Tensor sum_;  // 0-dim kDouble
  int64_t count_ = 0;
  torch::Tensor more_;  // 0-dim kDouble, added to count_; or undefined
};

}  // namespace tern
