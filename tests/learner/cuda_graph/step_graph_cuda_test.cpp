#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/cuda.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/cuda_graph/step_graph.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/memory_meter.h"
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

Trained train(SetUp set_up, bool graph, int64_t fits = 1) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data(250);
  data.device = torch::kCUDA;
  Learner learn(data, point_net(), {.seed = 3, .sink = sink});
  if (graph) learn.to_cuda_graph();
  set_up(learn);
  for (int64_t i = 0; i < fits; ++i) learn.fit_one_cycle(3, 1e-2);
  Trained result{
      .weights = parameters_of(learn),
      .losses = learn.recorder().losses_read()};
  for (const std::string& line : sink->lines) {
    if (line.starts_with("to_cuda_graph: ")) result.said += line;
  }
  if (graph) result.replayed = step_graph(learn)->replayed();
  return result;
}

void expect_same_training(SetUp set_up, int64_t fits = 1) {
  const Trained plain = train(set_up, false, fits),
                graph = train(set_up, true, fits);
  EXPECT_EQ(graph.replayed, 18) << graph.said;  // 3 x 7, minus 3 to warm up
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

TEST_F(StepGraphCudaTest, ClippedAndAveragedInThreeFits) {
  expect_same_training(
      [](Learner& l) { l.add<GradientClip>(0.5).add<Ema>(); },
      3);
}
TEST_F(StepGraphCudaTest, Fp16ClippedAndAveragedInThreeFits) {
  expect_same_training(
      [](Learner& l) { l.to_fp16().add<GradientClip>(0.5).add<Ema>(); },
      3);
}
TEST_F(StepGraphCudaTest, Bf16WithoutMasterWeightsInThreeFits) {
  expect_same_training(
      [](Learner& l) { l.to_bf16({.master_weights = false}); },
      3);
}
TEST_F(StepGraphCudaTest, AmpInFp16ClippedInThreeFits) {
  expect_same_training(
      [](Learner& l) {
        l.to_amp({.dtype = torch::kHalf}).add<GradientClip>(0.5);
      },
      3);
}

// GradScaler::update copies a count to pinned memory every 50th time. Here that
// is the recorded step; the copy must not become part of the graph.
TEST_F(StepGraphCudaTest, CanBeRecordedInAStepInWhichTheScalerWritesToTheHost) {
  DataBunch data = point_data(23 * 32);
  data.device = torch::kCUDA;
  Learner learn(data, point_net(), quiet());
  learn.to_fp16().fit(2, 1e-3);  // 46 updates; three to warm up, then the 50th
  learn.to_cuda_graph().fit(6, 1e-3);
  EXPECT_EQ(step_graph(learn)->replayed(), 6 * 23 - 3);
  EXPECT_TRUE(std::isfinite(learn.recorder().losses_read().back()));
}

// Neither graphs nor cuBLAS workspaces, which are per stream, accumulate.
TEST_F(StepGraphCudaTest, RepeatedFitsDoNotAccumulateMemory) {
  DataBunch data = point_data(250);
  data.device = torch::kCUDA;
  Learner learn(data, point_net(), quiet());
  learn.to_fp16().to_cuda_graph();
  const MemoryMeter meter(torch::kCUDA);
  std::vector<int64_t> live;
  for (int i = 0; i < 8; ++i) {
    learn.fit(1, 1e-3);
    torch::cuda::synchronize();
    live.push_back(meter.live_bytes());
  }
  EXPECT_LE(live.back(), live[2] + (1 << 16)) << testing::PrintToString(live);
}

// All batches are equal: with the same random numbers in each replay, the loss
// would repeat.
TEST_F(StepGraphCudaTest, DropoutDrawsNewNumbersInEachReplay) {
  struct Noise : torch::nn::Module {
    Noise() : weight(register_parameter("weight", torch::ones({1}))) {}
    torch::Tensor forward(const torch::Tensor& x) {
      return torch::dropout(x, 0.5, true) * weight;
    }
    torch::Tensor weight;
  };
  // Random values, so that different subsets have different sums.
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

TEST_F(StepGraphCudaTest, WarnsOfStepsThatReplaysSkip) {
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

// Synchronizes with the device, which a graph cannot record.
struct WaitingNet : torch::nn::Module {
  WaitingNet() : net(register_module("net", point_net())) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor noisy = torch::dropout(x, 0.1, is_training());
    return x.sum().item<float>() > 1e6 ? x : net->forward(noisy);
  }
  torch::nn::Sequential net;
};

TEST_F(StepGraphCudaTest, TrainsWithoutAGraphIfAStepCannotBeRecorded) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data();
  data.device = torch::kCUDA;
  Learner learn(data, std::make_shared<WaitingNet>(), {.sink = sink});
  learn.to_fp16().to_cuda_graph().fit(1);
  std::string said;
  for (const std::string& line : sink->lines) said += line + "\n";
  EXPECT_NE(said.find("cannot be recorded"), std::string::npos) << said;
  EXPECT_EQ(step_graph(learn)->replayed(), 0);
  // The device, its memory and its random generator still work.
  EXPECT_TRUE(
      torch::ones({1 << 20}, torch::kCUDA).sum().isfinite().item<bool>());
  learn.fit(1);
}

// Synchronizes with the device in backward, which runs in an autograd thread.
struct WaitsInBackward : torch::autograd::Function<WaitsInBackward> {
  static torch::Tensor forward(
      torch::autograd::AutogradContext*,
      const torch::Tensor& x) {
    return x * 1;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::variable_list gradients) {
    static_cast<void>(gradients[0].sum().item<float>());
    return {gradients[0]};
  }
};
struct NetThatWaitsInBackward : torch::nn::Module {
  NetThatWaitsInBackward() : net(register_module("net", point_net())) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor noisy = torch::dropout(x, 0.1, is_training());
    return WaitsInBackward::apply(net->forward(noisy));
  }
  torch::nn::Sequential net;
};

TEST_F(StepGraphCudaTest, TrainsWithoutAGraphIfBackwardCannotBeRecorded) {
  const auto sink = std::make_shared<MemorySink>();
  DataBunch data = point_data();
  data.device = torch::kCUDA;
  Learner learn(
      data,
      std::make_shared<NetThatWaitsInBackward>(),
      {.sink = sink});
  learn.to_cuda_graph().fit(2, 1e-2);
  EXPECT_EQ(step_graph(learn)->replayed(), 0);
  std::string said;
  for (const std::string& line : sink->lines) said += line + "\n";
  EXPECT_NE(said.find("cannot be recorded"), std::string::npos) << said;
  learn.fit(1, 1e-2);
  // Random numbers still work, and a different Learner's step can be recorded.
  EXPECT_TRUE(torch::dropout(torch::ones({64}, torch::kCUDA), 0.5, true)
                  .isfinite()
                  .all()
                  .item<bool>());
  EXPECT_EQ(train([](Learner& l) { l.to_fp16(); }, true).replayed, 18);
}

}  // namespace
}  // namespace tern::step_graph_cuda_test
