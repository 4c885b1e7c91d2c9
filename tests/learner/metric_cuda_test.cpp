#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/logging/train_metrics.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tiny.h"

namespace tern::metric_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

class MetricCudaTest : public GpuTest {};

TEST_F(MetricCudaTest, HostAndDeviceMetricsCanBeCombined) {
  DataBunch data = point_data();
  data.device = torch::kCUDA;
  const Metric host("host", [](const torch::Tensor&, const torch::Tensor&) {
    return torch::tensor(0.5);
  });
  Learner learn(data, point_net(), quiet({.metrics = {accuracy(), host}}));
  learn.add<TrainMetrics>();
  learn.fit(1, 1e-2);
  EXPECT_EQ(learn.validate()["host"], 0.5);
  EXPECT_EQ(learn.state()["train_host"], 0.5);
  EXPECT_GT(learn.state()["train_accuracy"], 0);
}

TEST_F(MetricCudaTest, NumbersOnAllDevicesAreRead) {
  const Tensors numbers = {
      torch::tensor(1.5),
      torch::tensor(2, torch::kCUDA),
      torch::full({1}, 3.5, torch::dtype(torch::kHalf).device(torch::kCUDA)),
      torch::tensor(4.5, torch::kDouble)};
  EXPECT_EQ(read_numbers(numbers), std::vector<double>({1.5, 2, 3.5, 4.5}));
}

}  // namespace
}  // namespace tern::metric_cuda_test
