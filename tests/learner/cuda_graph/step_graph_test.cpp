#include "tern/learner/cuda_graph/step_graph.h"

#include <cmath>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/diagnose/sync_audit.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/mix.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/recorded_graph.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::step_graph_test {
namespace {

using namespace testing_support;  // NOLINT

std::shared_ptr<StepGraph> recorded(CudaGraphOptions options = {}) {
  RecordedGraph::records = 0;
  return std::make_shared<StepGraph>(options, torch::kCPU, [](torch::Device) {
    return std::make_unique<RecordedGraph>();
  });
}

struct Case {
  const char* name;
  std::function<void(Learner&)> set_up;
  OptimizerFactory optimizer = {};
  int64_t samples = 256;  // batches of 32
  int64_t replayed = 13;  // of 16 steps, after 3 warm-up steps
  std::string said = {};
  int64_t dropout = 0;
};

struct Trained {
  Tensors weights;  // including master weights and buffers
  std::vector<double> losses = {};
  std::string said = {};
  int64_t replayed = 0;
};

Tensors weights_of(Learner& learn) {
  Tensors result;
  for (const auto& item : learn.state_dict()) {
    result.push_back(item.value().clone());
  }
  return result;
}

// Keeps a short last batch.
DataBunch data_of(std::shared_ptr<Dataset> train, bool shuffle = true) {
  DataBunch data = point_data();
  data.train = std::make_shared<DataLoader>(
      std::move(train),
      DataLoaderOptions{
          .batch_size = 32,
          .shuffle = shuffle,
          .training = true,
          .workers = 0});
  return data;
}

Trained train(const Case& c, bool graph) {
  const auto sink = std::make_shared<MemorySink>();
  const DataBunch data = data_of(points(c.samples));
  torch::nn::Sequential net = point_net();
  if (c.dropout) net->push_back(torch::nn::Dropout(0.5));
  Learner learn(data, net, {.optimizer = c.optimizer, .seed = 3, .sink = sink});
  if (graph) set_step_graph(learn, recorded());
  c.set_up(learn);
  learn.fit_one_cycle(2, 1e-2);
  Trained result;
  result.weights = weights_of(learn);
  result.losses = learn.recorder().losses_read();
  for (const std::string& line : sink->lines) {
    if (line.starts_with("to_cuda_graph: ")) result.said += line;
  }
  if (graph) result.replayed = step_graph(learn)->replayed();
  return result;
}

class StepGraphTest : public testing::TestWithParam<Case> {};

TEST_P(StepGraphTest, TrainsBitIdenticalToEagerSteps) {
  const Case& c = GetParam();
  const Trained plain = train(c, false), replayed = train(c, true);
  EXPECT_EQ(replayed.replayed, c.replayed);
  EXPECT_EQ(replayed.losses, plain.losses);
  EXPECT_TRUE(all_equal(replayed.weights, plain.weights));
  if (c.said.empty()) {
    EXPECT_EQ(replayed.said, "");
  } else {
    EXPECT_NE(replayed.said.find(c.said), std::string::npos) << replayed.said;
  }
}

const auto nothing = [](Learner&) {};
const auto fp16 = [](Learner& l) {
  l.to_fp16({.clip = 1.0, .force_fp16 = true});
};
OptimizerFactory sgd() {
  return optimizer<optim::SGD>(
      torch::optim::SGDOptions(1e-2).momentum(0.9).nesterov(true));
}

// Synchronizes with the device, which a graph cannot record.
struct WaitingNet : torch::nn::Module {
  WaitingNet() : net(register_module("net", point_net())) {}
  torch::Tensor forward(const torch::Tensor& x) {
    nonzeros = torch::nonzero(x).size(0);
    return net->forward(x);
  }
  torch::nn::Sequential net;
  int64_t nonzeros = 0;
};

INSTANTIATE_TEST_SUITE_P(
    Steps,
    StepGraphTest,
    testing::Values(
        Case{.name = "fp32", .set_up = nothing},
        Case{.name = "sgd", .set_up = nothing, .optimizer = sgd()},
        Case{.name = "fp16", .set_up = fp16},
        Case{
            .name = "fp16_static",
            .set_up =
                [](Learner& l) {
                  l.to_fp16({.loss_scale = 512, .force_fp16 = true});
                }},
        Case{
            .name = "fp16_flat_clip",
            .set_up =
                [](Learner& l) {
                  l.to_fp16({.flat_master = true, .force_fp16 = true});
                  l.add<GradientClip>(0.1);
                }},
        Case{.name = "bf16", .set_up = [](Learner& l) { l.to_bf16(); }},
        Case{.name = "amp", .set_up = [](Learner& l) { l.to_amp(); }},
        Case{
            .name = "amp_clip",
            .set_up = [](Learner& l) { l.to_amp().add<GradientClip>(0.1); },
            .optimizer = sgd()},
        Case{.name = "dropout", .set_up = nothing, .dropout = 1},
        Case{
            .name = "clip",
            .set_up =
                [](Learner& l) {
                  l.add<GradientClip>(0.1).add<TerminateOnNaN>();
                }},
        Case{
            .name = "gradient_penalty",
            .set_up = [](Learner& l) { l.to_amp().add<GradientPenalty>(0.1); }},
        Case{
            .name = "average",
            .set_up = [](Learner& l) { l.add<Ema>(0.5).add<SyncAudit>(); }},
        Case{
            .name = "short_last_batch",
            .set_up = nothing,
            .samples = 250,
            .replayed = 11,
            .said = "whose shape differs"},
        Case{
            .name = "freezing",
            .set_up =
                [](Learner& l) {
                  l.split({"3"});
                  l.add<LambdaCallback>(
                      LambdaCallbackOptions{.on_epoch_begin = [](Learner& l) {
                        l.freeze_to(l.state().epoch == 0 ? -1 : 0);
                      }});
                },
            .replayed = 10},
        Case{
            .name = "momentum_set_later",
            .set_up =
                [](Learner& l) {
                  l.add<LambdaCallback>(LambdaCallbackOptions{
                      .on_batch_begin =
                          [](Learner& l) {
                            const bool late = l.state().iteration >= 10;
                            loop::set_hyper_parameter(
                                parts_of(l),
                                HyperParameter::momentum,
                                {late ? 0.9 : 0.0});
                          },
                      .order = callback_order::kLast});
                },
            .optimizer = sgd(),
            .replayed = 10},
        Case{
            .name = "custom_loss",
            .set_up = [](Learner& l) { l.add<MixUp>(); },
            .replayed = 0,
            .said = "replaced the loss"},
        Case{
            .name = "accumulated_gradients",
            .set_up =
                [](Learner& l) {
                  l.add<LambdaCallback>(
                      LambdaCallbackOptions{.on_batch_begin = [](Learner& l) {
                        TrainState& s = l.state();
                        s.skip_step = s.skip_zero_grad = s.batch % 2 == 0;
                      }});
                },
            .replayed = 0,
            .said = "skips the optimizer's step"},
        Case{
            .name = "callback_inside_the_step",
            .set_up =
                [](Learner& l) {
                  l.add<LambdaCallback>(
                      LambdaCallbackOptions{.on_step_end = [](Learner&) {}});
                },
            .replayed = 0,
            .said = "LambdaCallback runs inside the step"},
        Case{
            .name = "torch_optimizer",
            .set_up = nothing,
            .optimizer =
                optimizer<torch::optim::Adam>(torch::optim::AdamOptions(1e-2)),
            .replayed = 0,
            .said = "use an optimizer of tern::optim"}),
    [](const auto& info) { return info.param.name; });

Trained train_waiting(bool graph) {
  const auto sink = std::make_shared<MemorySink>();
  torch::manual_seed(1);
  Learner learn(point_data(), std::make_shared<WaitingNet>(), {.sink = sink});
  if (graph) set_step_graph(learn, recorded());
  learn.to_fp16({.force_fp16 = true}).fit(2);
  Trained result{.weights = weights_of(learn)};
  for (const std::string& line : sink->lines) {
    if (line.starts_with("to_cuda_graph: ")) result.said += line;
  }
  return result;
}

TEST(StepGraph, TrainsWithoutAGraphIfAStepCannotBeRecorded) {
  const Trained plain = train_waiting(false), graph = train_waiting(true);
  EXPECT_NE(
      graph.said.find("not permitted while recording"),
      std::string::npos);
  EXPECT_TRUE(all_equal(graph.weights, plain.weights));
}

TEST(StepGraph, DoesNotRunTheModelsCodeAfterRecording) {
  struct Net : torch::nn::Module {
    Net() : net(register_module("net", point_net())) {}
    torch::Tensor forward(const torch::Tensor& x) {
      if (is_training()) ++calls;
      return net->forward(x);
    }
    torch::nn::Sequential net;
    int calls = 0;
  };
  const auto net = std::make_shared<Net>();
  Learner learn(point_data(), net, quiet());
  set_step_graph(learn, recorded({.warm_up_steps = 1}));
  learn.fit(1);
  EXPECT_EQ(step_graph(learn)->replayed(), 7);
  EXPECT_EQ(net->calls, 2);
}

// Returns the weights after a fit that loads an earlier state in its second
// epoch.
Tensors train_loading(bool graph, bool half, const LoadModelOptions& options) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  if (half) learn.to_fp16({.force_fp16 = true});
  if (graph) set_step_graph(learn, recorded());
  learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
        if (!l.state().training) return;
        if (l.state().iteration == 5) l.save("here");
        if (l.state().iteration == 9) l.load("here", options);
      }});
  learn.fit_one_cycle(2, 1e-2);
  // Warmed up and recorded again after the load.
  if (graph) EXPECT_EQ(step_graph(learn)->replayed(), 10);
  return weights_of(learn);
}

TEST(StepGraph, UpdatesLoadedMomentsAfterALoadDuringTheFit) {
  for (const bool half : {false, true}) {
    for (const bool with_optimizer : {true, false}) {
      const LoadModelOptions options{.with_optimizer = with_optimizer};
      EXPECT_TRUE(all_equal(
          train_loading(/*graph=*/true, half, options),
          train_loading(/*graph=*/false, half, options)))
          << "half " << half << ", with_optimizer " << with_optimizer;
    }
  }
}

// As on a GPU, where the host does not read whether the optimizer skipped the
// step.
class UnreadScaling final : public MixedPrecision {
 public:
  UnreadScaling()
      : MixedPrecision(
            torch::kCPU,
            {.dtype = torch::kHalf,
             .scaler = GradScalerOptions{.init_scale = 512}}) {}
  // Only the loss scale; the forward pass stays fp32.
  void forward(Learner&, c10::function_ref<void()> compute) override {
    compute();
  }
  StepResult step(Learner& learn) override {
    MixedPrecision::step(learn);
    learn.state().step_overflowed = scaler().found_inf(learn.optimizer());
    return StepResult::unknown;
  }
  std::string precision_text() const override { return "unread"; }
};

TEST(StepGraph, ReportsWhichReplayedStepsOverflowed) {
  torch::Tensor x = torch::randn({250, 2});
  for (const int64_t batch : {1, 4, 5}) x[batch * 32] = INFINITY;
  const Tensors targets = {(x.sum(1) > 0).to(torch::kLong)};
  const DataBunch data = data_of(
      std::make_shared<TensorDataset>(Tensors{x}, targets),
      /*shuffle=*/false);
  const auto train = [&](bool graph) {
    Learner learn(data, point_net(), quiet());
    if (graph) set_step_graph(learn, recorded());
    std::vector<double> skips;
    learn.add<UnreadScaling>().add<LambdaCallback>(
        LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
          if (!l.state().training) return;
          skips.push_back(l.state().step_overflowed.item<double>());
        }});
    learn.fit_one_cycle(2, 1e-2);
    if (graph) EXPECT_EQ(step_graph(learn)->replayed(), 11);
    const std::vector<double> in_epoch = {0, 1, 0, 0, 1, 1, 0, 0};
    std::vector<double> expected = in_epoch;
    expected.insert(expected.end(), in_epoch.begin(), in_epoch.end());
    EXPECT_EQ(skips, expected);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(StepGraph, GradientClipReportsTheNormOfAReplayedStep) {
  const auto norms = [](bool graph) {
    Learner learn(data_of(points(250)), point_net(), quiet({.seed = 3}));
    if (graph) set_step_graph(learn, recorded());
    std::vector<double> norms;
    learn.add<GradientClip>(0.1).add<LambdaCallback>(
        LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
          if (!l.state().training) return;
          norms.push_back(l.find<GradientClip>()->norm().item<double>());
        }});
    learn.fit(2);
    if (graph) EXPECT_EQ(step_graph(learn)->replayed(), 11);
    return norms;
  };
  EXPECT_EQ(norms(true), norms(false));
}

TEST(StepGraph, ChecksLabelsOfReplayedBatchesAndLeavesAUsableLearner) {
  const torch::Tensor x = torch::randn({64, 2});
  torch::Tensor y = torch::zeros({64}, torch::kLong);
  y[60] = 9;
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
      nullptr,
      {.batch_size = 8, .shuffle = false, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  set_step_graph(learn, recorded());
  expect_error<c10::Error>([&] { learn.fit(1); }, {"9"});
  EXPECT_EQ(step_graph(learn)->replayed(), 4);
  y[60] = 1;
  learn.fit(1);
  EXPECT_EQ(step_graph(learn)->replayed(), 5);
}

TEST(StepGraph, DoesNotReplayABatchWithoutCountedSamples) {
  // The third batch is the one to be recorded.
  for (const int64_t batch : {3, 5}) {
    std::vector<int64_t> indices(256);
    std::iota(indices.begin(), indices.end(), 0);
    const Batch all = points(256)->get_batch(indices, {});
    const torch::Tensor targets = all.targets[0].clone();
    targets.narrow(0, 32 * batch, 32).fill_(-100);
    const auto trained = [&](bool graph, std::string& said) {
      const auto sink = std::make_shared<MemorySink>();
      Learner learn(
          data_of(
              std::make_shared<TensorDataset>(all.inputs, Tensors{targets}),
              /*shuffle=*/false),
          point_net(),
          {.sink = sink});
      if (graph) set_step_graph(learn, recorded());
      learn.fit(2, 1e-2);
      if (graph) EXPECT_EQ(step_graph(learn)->replayed(), 11);
      EXPECT_EQ(learn.recorder().losses()[batch], 0);
      EXPECT_FALSE(std::isnan(learn.recorder().epochs().back().train_loss));
      for (const std::string& line : sink->lines) said += line;
      return weights_of(learn);
    };
    std::string plain, said;
    EXPECT_TRUE(all_equal(trained(true, said), trained(false, plain)));
    EXPECT_NE(said.find("no sample counts in the loss"), std::string::npos);
  }
}

TEST(StepGraph, LetsSyncAuditFindHostReadsOutsideTheStep) {
  Learner learn(point_data(), point_net(), quiet());
  set_step_graph(learn, recorded());
  learn.add<SyncAudit>().add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [](Learner& l) {
        static_cast<void>(l.state().loss.item<float>());
      }});
  learn.fit(1);
  EXPECT_EQ(step_graph(learn)->replayed(), 5);
  const auto& findings = learn.find<SyncAudit>()->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].where, "LambdaCallback in on_batch_end");
  EXPECT_EQ(findings[0].count, 5);
}

TEST(StepGraph, RecordsOncePerFit) {
  Learner learn(point_data(), point_net(), quiet());
  set_step_graph(learn, recorded());
  learn.fit(3);
  EXPECT_EQ(RecordedGraph::records, 1);
  learn.fit(1);
  EXPECT_EQ(RecordedGraph::records, 2);
}

TEST(StepGraph, RejectsWhatItCannotDo) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.to_cuda_graph(); },
      {"[Learner::to_cuda_graph]", "cpu", "needs a CUDA device"});
  expect_error<c10::ValueError>(
      [] { recorded({.warm_up_steps = 0}); },
      {"warm_up_steps is 0"});
  learn.add<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end = [](Learner& l) { set_step_graph(l, nullptr); }});
  expect_error<c10::Error>([&] { learn.fit(1); }, {"while fit is running"});
}

TEST(RecordedGraph, ReplaysOnTheRecordedMemory) {
  torch::Tensor x = torch::ones({2}), y = torch::zeros({2});
  const torch::Tensor old = y.detach();
  RecordedGraph graph;
  int runs = 0;
  const Tensors results = graph.record([&] {
    ++runs;
    y.add_(x);
    return Tensors{y * 2};
  });
  EXPECT_TRUE(torch::equal(old, torch::zeros({2})));  // nothing has run yet
  y.set_data(torch::full({2}, 5.0f));
  x.fill_(3);
  graph.replay();
  EXPECT_TRUE(torch::equal(old, torch::full({2}, 3.0f)));
  EXPECT_TRUE(torch::equal(results[0], torch::full({2}, 6.0f)));
  EXPECT_TRUE(torch::equal(y, torch::full({2}, 5.0f)));
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace tern::step_graph_test
