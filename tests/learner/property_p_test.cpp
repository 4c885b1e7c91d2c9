// With fp32 arithmetic and a power of two as scale, training with the scaler is
// bit-identical to plain training, even while the scale grows.

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/tolerance.h"

namespace tern::property_p_test {
namespace {

struct Net {
  explicit Net() {
    torch::manual_seed(5);
    module = torch::nn::Sequential(
        torch::nn::Linear(8, 16),
        torch::nn::Tanh(),
        torch::nn::Linear(16, 4));
  }

  torch::Tensor loss(int64_t seed) {
    auto generator = at::detail::createCPUGenerator(seed);
    const auto x = torch::randn({16, 8}, generator);
    const auto y = torch::randn({16, 4}, generator);
    return torch::mse_loss(module->forward(x), y);
  }

  torch::nn::Sequential module{nullptr};
};

// For plain training the scaler is disabled, so that every call passes through.
using Scenario =
    std::function<void(Net&, torch::optim::Optimizer&, GradScaler&, int)>;

void finish(torch::optim::Optimizer& optimizer, GradScaler& scaler) {
  scaler.step(optimizer);
  scaler.update();
  optimizer.zero_grad();
}

void typical(
    Net& net,
    torch::optim::Optimizer& optimizer,
    GradScaler& scaler,
    int step) {
  scaler.scale(net.loss(step)).backward();
  finish(optimizer, scaler);
}

void clip(
    Net& net,
    torch::optim::Optimizer& optimizer,
    GradScaler& scaler,
    int step) {
  scaler.scale(net.loss(step)).backward();
  scaler.unscale_(optimizer);
  clip_grad_norm_(net.module->parameters(), 0.1);
  finish(optimizer, scaler);
}

void accumulation(
    Net& net,
    torch::optim::Optimizer& optimizer,
    GradScaler& scaler,
    int step) {
  for (int part = 0; part < 3; ++part) {
    scaler.scale(net.loss(3 * step + part) / 3).backward();
  }
  finish(optimizer, scaler);
}

void penalty(
    Net& net,
    torch::optim::Optimizer& optimizer,
    GradScaler& scaler,
    int step) {
  const auto loss = net.loss(step);
  const auto scaled = torch::autograd::grad(
      {scaler.scale(loss)},
      net.module->parameters(),
      /*grad_outputs=*/{},
      /*retain_graph=*/true,
      /*create_graph=*/true);
  torch::Tensor norm2 = torch::zeros({});
  for (const auto& grad : scaled) {
    norm2 = norm2 + (grad / scaler.get_scale()).square().sum();
  }
  scaler.scale(loss + norm2.sqrt()).backward();
  finish(optimizer, scaler);
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make(Tensors params, Options options) {
  return std::make_unique<Optimizer>(std::move(params), options);
}

using Make = std::unique_ptr<torch::optim::Optimizer> (*)(Tensors);

std::unique_ptr<torch::optim::Optimizer> sgd(Tensors params) {
  return make<optim::SGD>(
      std::move(params),
      torch::optim::SGDOptions(.1).momentum(.9));
}
std::unique_ptr<torch::optim::Optimizer> adamw(Tensors params) {
  return make<optim::AdamW>(std::move(params), torch::optim::AdamWOptions(.01));
}
std::unique_ptr<torch::optim::Optimizer> torch_sgd(Tensors params) {
  return make<torch::optim::SGD>(
      std::move(params),
      torch::optim::SGDOptions(.1).momentum(.9));
}
std::unique_ptr<torch::optim::Optimizer> torch_adam(Tensors params) {
  return make<torch::optim::Adam>(
      std::move(params),
      torch::optim::AdamOptions(.01));
}

struct Case {
  std::string name;
  Scenario scenario;
  Make make;
};

class PropertyP : public testing::TestWithParam<Case> {
 protected:
  // Returns the parameters after 12 steps. At step `overflow_at` one gradient
  // is infinite.
  Tensors train(bool enabled, int overflow_at = -1) {
    Net net;
    const auto optimizer = GetParam().make(net.module->parameters());
    GradScaler scaler(
        {.device = torch::kCPU, .growth_interval = 4, .enabled = enabled});
    for (int step = 0; step < 12; ++step) {
      if (step == overflow_at) {
        if (!enabled) continue;
        scaler.scale(net.loss(step)).backward();
        net.module->parameters()[0].mutable_grad().index_put_({1, 2}, INFINITY);
        finish(*optimizer, scaler);
      } else {
        GetParam().scenario(net, *optimizer, scaler, step);
      }
    }
    scale = scaler.get_scale();
    return net.module->parameters();
  }

  double scale = 0;
};

void expect_bit_equal(const Tensors& actual, const Tensors& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(test::bit_equal(actual[i], expected[i])) << "parameter " << i;
  }
}

TEST_P(PropertyP, IsBitIdenticalToPlainTrainingWhileTheScaleGrows) {
  expect_bit_equal(train(true), train(false));
  train(true);
  EXPECT_EQ(scale, 65536 * 8);
}

TEST_P(PropertyP, IsBitIdenticalToTrainingWithoutTheStepThatOverflows) {
  expect_bit_equal(train(true, 5), train(false, 5));
  train(true, 5);
  EXPECT_EQ(scale, 65536 * 2);  // x2 after 4, halved at 5, x2 after 4 more
}

std::vector<Case> cases() {
  const std::vector<std::pair<std::string, Scenario>> scenarios = {
      {"typical", typical},
      {"clip", clip},
      {"accumulation", accumulation},
      {"penalty", penalty}};
  const std::vector<std::pair<std::string, Make>> optimizers = {
      {"sgd", sgd},
      {"adamw", adamw},
      {"torch_sgd", torch_sgd},
      {"torch_adam", torch_adam}};
  std::vector<Case> all;
  for (const auto& [scenario, run] : scenarios) {
    for (const auto& [optimizer, make] : optimizers) {
      all.push_back({scenario + "_" + optimizer, run, make});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Training,
    PropertyP,
    testing::ValuesIn(cases()),
    [](const auto& info) { return info.param.name; });

// ---- Other guarantees of the scenarios ----

TEST(MixedPrecision, ReportsTheRealGradientNormOnlyAfterUnscaling) {
  Net net;
  const auto optimizer = sgd(net.module->parameters());
  net.loss(0).backward();
  const auto plain = joint_norm(
      {net.module->parameters()[0].grad(), net.module->parameters()[1].grad()});
  const auto norm = [&](bool unscale) {
    GradScaler scaler({.device = torch::kCPU});
    optimizer->zero_grad();
    scaler.scale(net.loss(0)).backward();
    if (unscale) scaler.unscale_(*optimizer);
    return joint_norm(
        {net.module->parameters()[0].grad(),
         net.module->parameters()[1].grad()});
  };
  EXPECT_TRUE(test::bit_equal(norm(true), plain));
  EXPECT_TRUE(test::bit_equal(norm(false), plain * 65536));
}

TEST(MixedPrecision, SkipsEvenIfClippingHidesTheOverflow) {
  for (const Make make : {sgd, torch_sgd}) {
    Net net;
    const auto optimizer = make(net.module->parameters());
    Tensors before;
    for (const auto& p : net.module->parameters()) {
      before.push_back(p.detach().clone());
    }
    GradScaler scaler({.device = torch::kCPU});
    scaler.scale(net.loss(0)).backward();
    net.module->parameters()[0].mutable_grad().index_put_({0, 0}, INFINITY);
    scaler.unscale_(*optimizer);
    clip_grad_norm_(net.module->parameters(), 1);
    finish(*optimizer, scaler);
    expect_bit_equal(net.module->parameters(), before);
    EXPECT_EQ(scaler.get_scale(), 32768);
  }
}

TEST(MixedPrecision, SkipsAnAccumulationWindowOnceForOneOverflow) {
  Net net;
  const auto optimizer = adamw(net.module->parameters());
  GradScaler scaler({.device = torch::kCPU});
  for (int part = 0; part < 3; ++part) {
    scaler.scale(net.loss(part) / 3).backward();
    if (part == 1) {
      net.module->parameters()[1].mutable_grad().index_put_({0}, NAN);
    }
    EXPECT_EQ(scaler.get_scale(), 65536);
    EXPECT_EQ(scaler.growth_tracker(), 0);
  }
  const auto before = net.module->parameters()[0].detach().clone();
  finish(*optimizer, scaler);
  EXPECT_TRUE(test::bit_equal(net.module->parameters()[0], before));
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(MixedPrecision, SupportsSeveralModelsLossesAndOptimizers) {
  const auto train = [](bool enabled) {
    Net first, second;
    const auto sgd_of_first = sgd(first.module->parameters());
    const auto adam_of_second = torch_adam(second.module->parameters());
    GradScaler scaler({.device = torch::kCPU, .enabled = enabled});
    for (int step = 0; step < 5; ++step) {
      const auto a = first.loss(step);
      const auto b = second.loss(step + 100);
      const Tensors losses = scaler.scale({2 * a + 3 * b, 3 * a - 5 * b});
      losses[0].backward({}, /*retain_graph=*/true);
      losses[1].backward();
      scaler.unscale_(*sgd_of_first);
      scaler.step(*sgd_of_first);
      scaler.step(*adam_of_second);
      scaler.update();
      sgd_of_first->zero_grad();
      adam_of_second->zero_grad();
    }
    Tensors all = first.module->parameters();
    for (const auto& p : second.module->parameters()) all.push_back(p);
    return all;
  };
  expect_bit_equal(train(true), train(false));
}

TEST(MixedPrecision, KeepsGradientsThatUnderflowInHalf) {
  const auto weight_grad = [](double scale) {
    GradScaler scaler({.device = torch::kCPU, .init_scale = scale});
    const auto w = torch::ones({1, 1}).requires_grad_();
    optim::SGD optimizer({w}, torch::optim::SGDOptions(0));
    const auto x = torch::full({4, 1}, 1e-4, torch::kHalf);
    const auto pred = torch::matmul(x, w.to(torch::kHalf));
    scaler.scale((pred.to(torch::kFloat) * 1e-6).sum()).backward();
    scaler.unscale_(optimizer);
    return w.grad().item<double>();
  };
  EXPECT_EQ(weight_grad(1), 0);
  EXPECT_NEAR(weight_grad(65536), 4e-10, 4e-13);
}

}  // namespace
}  // namespace tern::property_p_test
