#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/graph/step_graph.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tiny.h"

namespace tern::step_graph_cuda_test {
namespace {

using namespace testing_support;  // NOLINT

class StepGraphCudaTest : public GpuTest {};

struct Trained {
  Tensors weights;
  std::vector<double> losses;
  std::string said = {};
  int64_t replayed = 0;
};

using SetUp = void (*)(Learner&);

Trained train(
    SetUp set_up,
    bool graph,
    const torch::nn::Sequential& net = point_net()) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data(250);
  data.device = torch::kCUDA;
  Learner learn(data, net, {.seed = 3, .sink = sink});
  if (graph) learn.to_cuda_graph();
  set_up(learn);
  learn.fit_one_cycle(3, 1e-2);
  Trained result{
      .weights = parameters_of(learn),
      .losses = learn.recorder().losses_read()};
  for (const std::string& line : sink->lines) {
    if (line.starts_with("to_cuda_graph: ")) result.said += line;
  }
  if (graph) result.replayed = step_graph(learn)->replayed();
  return result;
}

void expect_same_training(SetUp set_up) {
  const Trained plain = train(set_up, false), graph = train(set_up, true);
  EXPECT_EQ(graph.replayed, 18) << graph.said;  // 3 epochs of 7, and 3 to warm
  EXPECT_TRUE(all_equal(plain.weights, graph.weights));
  EXPECT_EQ(plain.losses, graph.losses);
}

TEST_F(StepGraphCudaTest, Fp32) {
  expect_same_training([](Learner&) {});
}
TEST_F(StepGraphCudaTest, Fp16) {
  expect_same_training([](Learner& l) { l.to_fp16({.clip = 1.0}); });
}
TEST_F(StepGraphCudaTest, Fp16WithAStaticScale) {
  expect_same_training([](Learner& l) { l.to_fp16({.loss_scale = 512}); });
}
TEST_F(StepGraphCudaTest, Bf16) {
  expect_same_training([](Learner& l) { l.to_bf16(); });
}
TEST_F(StepGraphCudaTest, Amp) {
  expect_same_training([](Learner& l) { l.to_amp(); });
}

// All batches are the same: with the same random numbers in each replay the
// loss would repeat itself.
TEST_F(StepGraphCudaTest, DropoutGoesOnBetweenReplays) {
  struct Noise : torch::nn::Module {
    Noise() : weight(register_parameter("weight", torch::ones({1}))) {}
    torch::Tensor forward(const torch::Tensor& x) {
      return torch::dropout(x, 0.5, true) * weight;
    }
    torch::Tensor weight;
  };
  // Random, so that no two sums of some of them are equal.
  const torch::Tensor x = torch::rand({1000}).repeat({512, 1});
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{x},
          Tensors{torch::zeros_like(x)}),
      nullptr,
      {.batch_size = 32, .workers = 0});
  data.device = torch::kCUDA;
  Learner learn(data, std::make_shared<Noise>(), quiet());
  learn.to_cuda_graph().fit(1, 0.0);
  EXPECT_EQ(step_graph(learn)->replayed(), 13);
  const auto losses = learn.recorder().losses_read();
  EXPECT_EQ(std::set<double>(losses.begin(), losses.end()).size(), 16u);
}

TEST_F(StepGraphCudaTest, WarnsOfStepsThatAreSkippedInReplays) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data();
  data.device = torch::kCUDA;
  const torch::nn::Sequential net = point_net();
  net->parameters()[0].data().fill_(NAN);
  Learner learn(data, net, {.sink = sink});
  learn.to_fp16().to_cuda_graph().fit(15);  // 120 steps
  EXPECT_GT(step_graph(learn)->replayed(), 100);
  std::string said;
  for (const std::string& line : sink->warnings) said += line + "\n";
  EXPECT_NE(said.find("updates in a row"), std::string::npos) << said;
}

// Waits for the device, which a graph cannot.
struct WaitingNet : torch::nn::Module {
  WaitingNet() : net(register_module("net", point_net())) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor noisy = torch::dropout(x, 0.1, is_training());
    return x.sum().item<float>() > 1e6 ? x : net->forward(noisy);
  }
  torch::nn::Sequential net;
};

TEST_F(StepGraphCudaTest, GoesOnWithoutWhenAStepCannotBeRecorded) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data();
  data.device = torch::kCUDA;
  Learner learn(data, std::make_shared<WaitingNet>(), {.sink = sink});
  learn.to_fp16().to_cuda_graph().fit(1);
  std::string said;
  for (const std::string& line : sink->lines) said += line + "\n";
  EXPECT_NE(said.find("cannot be recorded"), std::string::npos) << said;
  EXPECT_EQ(step_graph(learn)->replayed(), 0);
  // The device, its memory and its random numbers are as usable as before.
  EXPECT_TRUE(
      torch::ones({1 << 20}, torch::kCUDA).sum().isfinite().item<bool>());
  learn.fit(1);
}

}  // namespace
}  // namespace tern::step_graph_cuda_test
