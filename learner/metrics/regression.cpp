#include "tern/learner/metrics/regression.h"

#include <utility>

#include "tern/learner/metrics/class_numbers.h"

namespace tern {

namespace {

enum class Error { squared, absolute, root_squared };

class RegressionMetric final : public MeanMetric {
 public:
  RegressionMetric(std::string name, Error error)
      : MeanMetric(std::move(name), /*higher_is_better=*/false),
        error_(error) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const torch::Tensor target = in_shape_of(name(), outputs[0], targets[0]);
    const torch::Tensor difference =
        outputs[0].to(torch::kDouble) - target.to(torch::kDouble);
    const torch::Tensor error =
        error_ == Error::absolute ? difference.abs() : difference.square();
    add(error.sum(), error.numel());
  }

  torch::Tensor compute() const override {
    const torch::Tensor mean = MeanMetric::compute();
    return error_ == Error::root_squared ? mean.sqrt() : mean;
  }

 private:
  Error error_;
};

}  // namespace

Metric mse() {
  return std::make_shared<RegressionMetric>("mse", Error::squared);
}

Metric mae() {
  return std::make_shared<RegressionMetric>("mae", Error::absolute);
}

Metric rmse() {
  return std::make_shared<RegressionMetric>("rmse", Error::root_squared);
}

}  // namespace tern
