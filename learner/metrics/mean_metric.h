#pragma once

#include <string>

#include "tern/learner/metric.h"

namespace tern {

/// Base of metrics that are a sum over elements divided by their number. The
/// sum stays on the device, in kDouble; the number is known on the host.
class MeanMetric : public MetricImpl {
 public:
  MeanMetric(std::string name, bool higher_is_better);

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return higher_is_better_; }
  void reset() override;
  torch::Tensor compute() const override;
  void join_ranks(const AddUp& add_up) override;

 protected:
  /// \param sum  0-dim, any type; the sum over `count` elements.
  void add(const torch::Tensor& sum, int64_t count);

 private:
  std::string name_;
  bool higher_is_better_;
  torch::Tensor sum_;  // 0-dim kDouble
  int64_t count_ = 0;
};

}  // namespace tern
