#include <chrono>

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::learner_fused_optimizer_cuda_test {
namespace {

/// One parameter with a gradient of ones, and SGD that reads its learning rate
/// on the device.
class FusedOptimizerRatesCudaTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    param = torch::zeros({4}, torch::kCUDA).requires_grad_();
    param.mutable_grad() = torch::ones({4}, torch::kCUDA);
    sgd = std::make_unique<optim::SGD>(
        Tensors{param},
        torch::optim::SGDOptions(0.0));
    sgd->rates_on_device(true);
    sgd->step();
    write(0);
    torch::cuda::synchronize();
  }

  void write(double lr) {
    sgd->param_groups()[0].options().set_lr(lr);
    sgd->write_rates();
  }

  /// Keeps the device busy for a few hundredths of a second.
  static void start_long_work() {
    const auto big = torch::randn({8192, 8192}, torch::kCUDA);
    torch::Tensor x = big;
    for (int i = 0; i < 30; ++i) x = torch::mm(big, x);
  }

  torch::Tensor param;
  std::unique_ptr<optim::SGD> sgd;
};

TEST_F(FusedOptimizerRatesCudaTest, WritingThemDoesNotSynchronize) {
  using Clock = std::chrono::steady_clock;
  start_long_work();
  torch::cuda::synchronize();  // warms up cuBLAS
  const auto begin = Clock::now();
  start_long_work();
  const auto launched = Clock::now();
  write(0.5);
  const auto written = Clock::now();
  torch::cuda::synchronize();
  const auto done = Clock::now();
  EXPECT_LT((written - launched).count(), 0.2 * (done - begin).count());
}

// Each value must stay in host memory until its copy runs, long after the host
// has written the next ones.
TEST_F(FusedOptimizerRatesCudaTest, AQueuedStepKeepsItsOwn) {
  start_long_work();
  double sum = 0;
  for (int i = 1; i <= 200; ++i) {
    write(i);
    sgd->step();
    sum += i;
  }
  EXPECT_EQ(param.sum().item<double>(), -4 * sum);
}

}  // namespace
}  // namespace tern::learner_fused_optimizer_cuda_test
