#pragma once

#include <functional>
#include <string>

#include "tern/learner/metric.h"

namespace tern {

/// Base of metrics that follow from the confusion matrix of the whole set,
/// which is counted on the device in kLong.
class ConfusionMetric final : public MetricImpl {
 public:
  /// \param matrix  [C, C] kDouble: rows are true classes, columns predicted.
  /// \return        0-dim kDouble.
  using Formula = std::function<torch::Tensor(const torch::Tensor& matrix)>;

  ConfusionMetric(std::string name, Formula formula);

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  void reset() override { counts_.reset(); }
  void update(const Tensors& outputs, const Tensors& targets) override;
  torch::Tensor compute() const override;
  void sync(const AllReduce& all_reduce) override;

 private:
  std::string name_;
  Formula formula_;
  torch::Tensor counts_;  // [C, C] kLong
};

}  // namespace tern
