#include "tern/learner/amp/activation_checkpoint.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "tern/learner/amp/autocast.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/tests/support/expect_error.h"

namespace tern::activation_checkpoint_test {
namespace {

using torch::nn::Sequential;

Sequential block() {
  return Sequential(
      torch::nn::Linear(16, 32),
      torch::nn::BatchNorm1d(32),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(32, 16));
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool recomputes) {
    torch::manual_seed(1);
    first = block();
    second = block();
    last = register_module("last", torch::nn::Linear(16, 4));
    if (recomputes) {
      first_again = register_module("first", ActivationCheckpoint(first));
      second_again = register_module("second", ActivationCheckpoint(second));
    } else {
      register_module("first", first);
      register_module("second", second);
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = first_again ? first_again->forward(x) : first->forward(x);
    x = second_again ? second_again->forward(x) : second->forward(x);
    return last->forward(x);
  }
  Sequential first, second;
  torch::nn::Linear last{nullptr};
  ActivationCheckpoint first_again{nullptr}, second_again{nullptr};
};
TORCH_MODULE(Net);

struct Pair {
  Net plain{false}, recomputed{true};
};

// Returns loss, gradients and buffers after forward and backward of one batch.
std::vector<torch::Tensor> step(Net& net, const torch::Tensor& x) {
  torch::manual_seed(2);
  const torch::Tensor loss = net->forward(x).to(torch::kFloat).square().mean();
  loss.backward();
  std::vector<torch::Tensor> all{loss.detach(), torch::rand(1)};
  for (const auto& p : net->parameters()) all.push_back(p.grad());
  for (const auto& b : net->buffers()) all.push_back(b);
  return all;
}

void expect_equal(
    const std::vector<torch::Tensor>& a,
    const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
  }
}

TEST(ActivationCheckpoint, HasTheGradientsBuffersAndRandomNumbersOfItsModule) {
  Pair nets;
  const torch::Tensor x = torch::rand({8, 16});
  expect_equal(step(nets.recomputed, x), step(nets.plain, x));
}

TEST(ActivationCheckpoint, GivesTheSameGradientsUnderAutocast) {
  Pair nets;
  const torch::Tensor x = torch::rand({8, 16});
  const auto mixed = [&](Net& net) {
    torch::manual_seed(2);
    torch::Tensor loss;
    {
      const AutocastGuard autocast(torch::kCPU);
      loss = net->forward(x).to(torch::kFloat).square().mean();
    }
    loss.backward();
    std::vector<torch::Tensor> all{loss.detach()};
    for (const auto& p : net->parameters()) all.push_back(p.grad());
    return all;
  };
  expect_equal(mixed(nets.recomputed), mixed(nets.plain));
}

TEST(ActivationCheckpoint, GivesItsInputTheSameGradientAsItsModule) {
  Pair nets;
  const auto gradient = [](Net& net) {
    torch::manual_seed(2);
    const torch::Tensor x = torch::ones({8, 16}).requires_grad_();
    net->forward(x).sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(nets.recomputed), gradient(nets.plain)));
}

TEST(ActivationCheckpoint, KeepsTheParameterAndBufferNamesOfItsModule) {
  const Pair nets;
  EXPECT_EQ(
      nets.recomputed->named_parameters().keys(),
      nets.plain->named_parameters().keys());
  EXPECT_EQ(
      nets.recomputed->named_buffers().keys(),
      nets.plain->named_buffers().keys());
}

TEST(ActivationCheckpoint, NeedsLessMemory) {
  const auto peak = [](bool recomputes) {
    std::vector<Sequential> parts(4, nullptr);
    std::vector<ActivationCheckpoint> again(4, nullptr);
    const torch::Tensor input = torch::rand({4096, 16});
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = Sequential();
      for (int layer = 0; layer < 8; ++layer) {
        parts[i]->push_back(torch::nn::Linear(16, 16));
        parts[i]->push_back(torch::nn::Tanh());
      }
      again[i] = ActivationCheckpoint(parts[i]);
    }
    const MemoryMeter meter(torch::kCPU);
    torch::Tensor x = input;
    for (size_t i = 0; i < parts.size(); ++i) {
      x = recomputes ? again[i]->forward(x) : parts[i]->forward(x);
    }
    x.sum().backward();
    return meter.peak_bytes();
  };
  EXPECT_LT(peak(true), 0.6 * static_cast<double>(peak(false)));
}

TEST(ActivationCheckpoint, FollowsTrainAndEvalMode) {
  Pair nets;
  nets.plain->eval();
  nets.recomputed->eval();
  const torch::Tensor x = torch::rand({1, 16});  // no batch statistics
  EXPECT_TRUE(
      torch::equal(nets.recomputed->forward(x), nets.plain->forward(x)));
}

TEST(ActivationCheckpoint, IsClonedWithItsModule) {
  ActivationCheckpoint module(block());
  const auto copy =
      std::dynamic_pointer_cast<ActivationCheckpointImpl>(module->clone());
  ASSERT_TRUE(copy);
  const torch::Tensor x = torch::rand({8, 16});
  torch::manual_seed(3);
  const torch::Tensor y = module->forward(x);
  torch::manual_seed(3);
  const torch::Tensor z = copy->forward(x);
  EXPECT_TRUE(torch::equal(y, z));
  z.sum().backward();
  EXPECT_TRUE(copy->parameters()[0].grad().defined());
  EXPECT_FALSE(module->parameters()[0].grad().defined());
}

TEST(ActivationCheckpoint, RejectsASingleLayerAndDoesNotSupportAutogradGrad) {
  expect_error<c10::ValueError>(
      [] { ActivationCheckpoint(torch::nn::Linear(2, 2)); },
      {"ActivationCheckpoint", "Sequential"});
  Pair nets;
  expect_error<c10::Error>(
      [&] {
        torch::autograd::grad(
            {nets.recomputed->forward(torch::rand({8, 16})).sum()},
            {nets.recomputed->named_parameters()["first.0.weight"]});
      },
      {"torch::autograd::grad", "backward()"});
}

}  // namespace
}  // namespace tern::activation_checkpoint_test
