#include "tern/learner/distributed/data_parallel.h"

#include <cmath>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"

namespace tern::data_parallel_test {
namespace {

const std::vector<torch::Device> kTwo = {torch::kCPU, torch::kCPU};
const std::vector<torch::Device> kThree = {
    torch::kCPU,
    torch::kCPU,
    torch::kCPU};

torch::nn::Sequential net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(
      torch::nn::Linear(4, 8),
      torch::nn::Tanh(),
      torch::nn::Linear(8, 2));
}

Tensors gradients(const torch::nn::Sequential& module) {
  Tensors all;
  for (const auto& p : module->parameters()) all.push_back(p.grad());
  return all;
}

TEST(DataParallel, ReturnsTheOutputAndGradientsOfOneDevice) {
  const auto x = torch::randn({7, 4});
  for (const auto& devices : {kTwo, kThree}) {
    auto alone = net(), together = net();
    const auto expected = alone->forward(x);
    const auto output = data_parallel(together, x, devices);
    EXPECT_TRUE(torch::allclose(output, expected, 1e-6, 1e-6));
    expected.square().mean().backward();
    output.square().mean().backward();
    const Tensors a = gradients(alone), b = gradients(together);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-7)) << i;
    }
  }
}

TEST(DataParallel, ReturnsASingleDtypeUnderAutocast) {
  auto module = net();
  const auto x = torch::randn({6, 4});
  {
    const AutocastGuard guard(torch::kCPU);
    EXPECT_EQ(data_parallel(module, x, kThree).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(data_parallel(module, x, kThree).scalar_type(), torch::kFloat);
}

TEST(DataParallel, TrainsThroughAScalerWithFloatGradients) {
  auto module = net();
  optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(.1));
  GradScaler scaler({.device = torch::kCPU});
  const auto x = torch::randn({16, 4}), y = torch::randn({16, 2});
  float first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    torch::Tensor loss;
    {
      const AutocastGuard guard(torch::kCPU);
      loss = torch::mse_loss(data_parallel(module, x, kTwo), y);
    }
    scaler.scale(loss).backward();
    for (const auto& grad : gradients(module)) {
      EXPECT_EQ(grad.scalar_type(), torch::kFloat);
    }
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.8 * first);
}

TEST(DataParallel, AccumulatesIntoExistingGradients) {
  auto module = net();
  const auto x = torch::randn({4, 4});
  data_parallel(module, x, kTwo).sum().backward();
  const auto once = module->parameters()[0].grad().clone();
  data_parallel(module, x, kTwo).sum().backward();
  EXPECT_TRUE(
      torch::allclose(module->parameters()[0].grad(), 2 * once, 1e-5, 1e-6));
}

TEST(DataParallel, KeepsTheStatisticsOfTheFirstReplica) {
  torch::nn::Sequential module{torch::nn::BatchNorm1d(4)};
  const auto x = torch::randn({8, 4});
  data_parallel(module, x, kTwo);
  torch::nn::Sequential alone{torch::nn::BatchNorm1d(4)};
  alone->forward(x.chunk(2)[0]);
  EXPECT_TRUE(torch::equal(module->buffers()[0], alone->buffers()[0]));
}

TEST(DataParallel, KeepsEvalAndNoGradMode) {
  torch::nn::Sequential module{torch::nn::BatchNorm1d(4)};
  module->eval();
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({8, 4});
  const auto output = data_parallel(module, x, kTwo);
  EXPECT_FALSE(output.requires_grad());
  EXPECT_TRUE(torch::equal(output, module->forward(x)));
}

TEST(DataParallel, LeavesDevicesWithoutSamplesIdle) {
  auto module = net();
  const auto x = torch::randn({1, 4});
  EXPECT_TRUE(
      torch::equal(data_parallel(module, x, kThree), module->forward(x)));
}

struct Thrower : torch::nn::Cloneable<Thrower> {
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (x[0].item<float>() > 0) {
      throw std::runtime_error(fmt::format("part {}", x[0].item<float>()));
    }
    return x;
  }
};

TEST(DataParallel, ThrowsTheExceptionOfTheFirstFailingReplica) {
  const auto module = std::make_shared<Thrower>();
  expect_error<std::runtime_error>(
      [&] {
        data_parallel(module, torch::tensor({0.f, 1.f, 2.f}), kThree);
      },
      {"part 1"});
}

TEST(DataParallel, ReturnsNaNForAModelWithNaNWeights) {
  auto module = net();
  const torch::NoGradGuard no_grad;
  module->parameters()[0][0][0] = std::nan("");
  const auto output = data_parallel(module, torch::ones({4, 4}), kTwo);
  EXPECT_TRUE(output.isnan().all().item<bool>());
}

TEST(DataParallel, RejectsInvalidInput) {
  auto module = net();
  expect_error<c10::ValueError>(
      [&] {
        data_parallel(module, torch::empty({0, 4}), kTwo);
      },
      {"[N, ...] with N >= 1"});
  expect_error<c10::ValueError>(
      [&] {
        data_parallel(
            module,
            torch::ones({2, 4}),
            std::vector<torch::Device>{torch::kMeta});
      },
      {"parameter on cpu", "module->to(meta)"});
  if (!torch::cuda::is_available()) {
    expect_error<c10::ValueError>(
        [&] {
          data_parallel(module, torch::ones({2, 4}));
        },
        {"no CUDA device"});
  }
}

}  // namespace
}  // namespace tern::data_parallel_test
