#include "tern/callbacks/multi_optimizer.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/mix.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/cuda_graph/step_graph.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/precision_policy.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/recorded_graph.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::multi_optimizer_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::nn::Linear;
using torch::nn::Sequential;

// Generates points from noise and distinguishes them from real ones.
struct GanImpl : torch::nn::Module {
  Sequential critic = register_module(
      "critic",
      Sequential(Linear(2, 8), torch::nn::Tanh(), Linear(8, 1)));
  Sequential generator = register_module(
      "generator",
      Sequential(Linear(4, 8), torch::nn::Tanh(), Linear(8, 2)));

  torch::Tensor forward(const torch::Tensor& noise) {
    return generator->forward(noise);
  }
  torch::Tensor judge(const torch::Tensor& x, double is_real) {
    const torch::Tensor logits = critic->forward(x).to(torch::kFloat);
    return torch::binary_cross_entropy_with_logits(
        logits,
        torch::full_like(logits, is_real));
  }
  torch::Tensor fakes(const Batch& batch) {
    const torch::Tensor& real = batch.inputs[0];
    return forward(torch::randn({real.size(0), 4}, real.options()));
  }
  torch::Tensor critic_loss(const Batch& batch) {
    return judge(batch.inputs[0], 1) + judge(fakes(batch).detach(), 0);
  }
  torch::Tensor generator_loss(const Batch& batch) {
    return judge(fakes(batch), 1);
  }
};
TORCH_MODULE(Gan);

Gan tiny_gan() {
  torch::manual_seed(7);
  return Gan();
}

const auto kAdam = optimizer<torch::optim::Adam>(
    torch::optim::AdamOptions().betas({0.5, 0.999}));
const auto kFusedAdam =
    optimizer<optim::Adam>(torch::optim::AdamOptions().betas({0.5, 0.999}));
const auto kRmsprop = optimizer<torch::optim::RMSprop>();
constexpr double kCriticLr = 4e-3, kGeneratorLr = 1e-3;

MultiOptimizer::Options parts_of(
    Gan gan,
    const OptimizerFactory& optimizer = kAdam) {
  return {
      .parts = {
          {.name = "critic",
           .loss =
               [gan](const Batch& b) mutable { return gan->critic_loss(b); },
           .optimizer = optimizer,
           .lr = kCriticLr},
          {.name = "generator",
           .loss =
               [gan](const Batch& b) mutable { return gan->generator_loss(b); },
           .optimizer = optimizer,
           .lr = kGeneratorLr}}};
}

std::unique_ptr<Learner> learner_of(
    const Gan& gan,
    const std::optional<MultiOptimizer::Options>& options = {},
    LearnerOptions more = {}) {
  more.weight_decay = 0;
  auto learn = std::make_unique<Learner>(
      point_data(256, 0),
      gan,
      quiet(std::move(more)));
  learn->add<MultiOptimizer>(options.value_or(parts_of(gan)));
  return learn;
}

// The equivalent training loop without a Learner.
struct HandLoop {
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
  std::vector<std::function<torch::Tensor(const Batch&)>> losses;
  std::function<std::vector<size_t>(int64_t)> turns = [](int64_t) {
    return std::vector<size_t>{0, 1};
  };
  std::optional<torch::ScalarType> autocast = {};
  std::optional<double> clip = {};
  GradScaler scaler = GradScaler({.enabled = false});
  std::vector<std::vector<StepResult>> results = {};

  void fit(Gan gan, int64_t epochs) {
    const DataBunch data = point_data(256, 0);
    for (int64_t epoch = 0, i = 0; epoch < epochs; ++epoch) {
      DataLoader::Epoch batches = data.train->epoch(epoch);
      for (; auto batch = batches.next(); ++i) {
        results.emplace_back();
        for (const size_t part : turns(i)) {
          torch::Tensor loss;
          {
            const AutocastGuard guard(
                torch::kCPU,
                autocast,
                autocast.has_value());
            loss = losses[part](*batch);
          }
          scaler.scale(loss).backward();
          if (clip) {
            scaler.unscale_(*optimizers[part]);
            clip_grad_norm_(*optimizers[part], *clip);
          }
          results.back().push_back(scaler.step(*optimizers[part]));
          gan->zero_grad();
        }
        scaler.update();
      }
    }
  }
};

template <class Optimizer = torch::optim::Adam>
HandLoop loop_of(Gan gan) {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  const auto adam = [](const Sequential& net, double lr) {
    return std::make_unique<Optimizer>(
        Groups{net->parameters()},
        torch::optim::AdamOptions(lr).betas({0.5, 0.999}));
  };
  const auto parts = parts_of(gan).parts;
  HandLoop loop{.losses = {parts[0].loss, parts[1].loss}};
  loop.optimizers.push_back(adam(gan->critic, kCriticLr));
  loop.optimizers.push_back(adam(gan->generator, kGeneratorLr));
  return loop;
}

Tensors weights_of(const Gan& gan) {
  Tensors result;
  for (const auto& p : gan->parameters()) result.push_back(p.detach().clone());
  return result;
}

// ---- Bit-identical to a manual loop ----

TEST(MultiOptimizer, MatchesAManualLoopWithAllPartsOnEachBatch) {
  Gan gan = tiny_gan(), by_hand = tiny_gan();
  const auto learn = learner_of(gan);
  torch::manual_seed(1);
  learn->fit(2);
  torch::manual_seed(1);
  loop_of(by_hand).fit(by_hand, 2);
  EXPECT_TRUE(all_equal(weights_of(gan), weights_of(by_hand)));
  EXPECT_FALSE(all_equal(weights_of(gan), weights_of(tiny_gan())));
}

TEST(MultiOptimizer, MatchesAManualLoopWithTurns) {
  Gan gan = tiny_gan(), by_hand = tiny_gan();
  auto options = parts_of(gan);
  options.alternate = true;
  options.parts[0].steps = 3;
  const auto learn = learner_of(gan, options);
  torch::manual_seed(1);
  learn->fit(2);
  torch::manual_seed(1);
  HandLoop loop = loop_of(by_hand);
  loop.turns = [](int64_t batch) {
    return std::vector<size_t>{batch % 4 < 3 ? 0U : 1U};
  };
  loop.fit(by_hand, 2);
  EXPECT_TRUE(all_equal(weights_of(gan), weights_of(by_hand)));
}

TEST(MultiOptimizer, SupportsDifferentOptimizerTypes) {
  Gan gan = tiny_gan(), by_hand = tiny_gan();
  auto options = parts_of(gan);
  options.parts[1].optimizer = kRmsprop;
  const auto learn = learner_of(gan, options);
  torch::manual_seed(1);
  learn->fit(1);
  torch::manual_seed(1);
  HandLoop loop = loop_of(by_hand);
  loop.optimizers[1] = std::make_unique<torch::optim::RMSprop>(
      by_hand->generator->parameters(),
      torch::optim::RMSpropOptions(kGeneratorLr));
  loop.fit(by_hand, 1);
  EXPECT_TRUE(all_equal(weights_of(gan), weights_of(by_hand)));
}

// ---- Precision ----

template <class Optimizer>
void expect_one_scaler(const OptimizerFactory& optimizer) {
  Gan gan = tiny_gan(), by_hand = tiny_gan();
  const GradScalerOptions scaler = {
      .device = torch::kCPU,
      .init_scale = 1024,
      .growth_interval = 5};
  // The critic's gradients overflow in the fourth batch.
  const auto overflowing = [](auto loss) {
    return [loss, calls = 0](const Batch& batch) mutable {
      const double factor =
          calls++ == 3 ? std::numeric_limits<double>::infinity() : 1;
      return loss(batch) * factor;
    };
  };
  auto options = parts_of(gan, optimizer);
  options.parts[0].loss = overflowing(options.parts[0].loss);
  const auto learn = learner_of(gan, options);
  learn->to_amp({.dtype = torch::kHalf, .scaler = scaler});
  learn->add<GradientClip>(0.1);
  torch::manual_seed(1);
  learn->fit(2);

  HandLoop loop = loop_of<Optimizer>(by_hand);
  loop.losses[0] = overflowing(loop.losses[0]);
  loop.autocast = torch::kHalf;
  loop.clip = 0.1;
  loop.scaler = GradScaler(scaler);
  torch::manual_seed(1);
  loop.fit(by_hand, 2);
  EXPECT_TRUE(all_equal(weights_of(gan), weights_of(by_hand)));
  EXPECT_EQ(
      learn->find<MixedPrecision>()->scaler().get_scale(),
      loop.scaler.get_scale());
  // 1024, halved once, doubled after steps 8 and 13.
  EXPECT_EQ(loop.scaler.get_scale(), 2048);
}

TEST(MultiOptimizer, HasOneScalerThatSkipsEachOptimizerSeparately) {
  expect_one_scaler<torch::optim::Adam>(kAdam);
  expect_one_scaler<optim::Adam>(kFusedAdam);
}

TEST(MultiOptimizer, TrainsA16BitModelWithMasterWeights) {
  Gan gan = tiny_gan(), by_hand = tiny_gan();
  const auto learn = learner_of(gan, parts_of(gan, kFusedAdam));
  learn->to_fp16({.force_fp16 = true});
  torch::manual_seed(1);
  learn->fit(2);
  learn->to_fp32();

  HandLoop loop = loop_of<optim::Adam>(by_hand);
  MasterWeights masters(Model(by_hand), torch::kHalf);
  for (const auto& optimizer : loop.optimizers) {
    rebind_parameters(*optimizer, masters.weights(), masters.masters());
    dynamic_cast<AmpAware&>(*optimizer)
        .set_weights(masters.masters(), masters.weights());
  }
  for (auto& loss : loop.losses) {
    loss = [loss](const Batch& batch) {
      return loss({.inputs = {batch.inputs[0].to(torch::kHalf)}});
    };
  }
  loop.scaler = GradScaler({.device = torch::kCPU});
  torch::manual_seed(1);
  loop.fit(by_hand, 2);
  masters.restore();
  EXPECT_TRUE(all_equal(weights_of(gan), weights_of(by_hand)));
  EXPECT_FALSE(all_equal(weights_of(gan), weights_of(tiny_gan())));
}

TEST(MultiOptimizer, TrainsA16BitModelWithOptimizersOfLibTorch) {
  // With this eps, gradients that half rounds to nearly 0 do not matter.
  const auto how = torch::optim::AdamOptions().betas({0.5, 0.999}).eps(1e-3);
  const auto adam = optimizer<torch::optim::Adam>(how);
  for (const auto& factory : {adam, optimizer<optim::Adam>(how)}) {
    Gan gan = tiny_gan();
    auto options = parts_of(gan, adam);
    options.parts[1].optimizer = factory;
    const auto learn = learner_of(gan, options);
    learn->to_fp16({.force_fp16 = true});
    torch::manual_seed(1);
    learn->fit(4);
    learn->to_fp32();
    Gan exact = tiny_gan();
    const auto plain = learner_of(exact, parts_of(exact, adam));
    torch::manual_seed(1);
    plain->fit(4);
    const Tensors a = weights_of(gan), b = weights_of(exact);
    const Tensors before = weights_of(tiny_gan());
    double difference = 0, way = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_LT((a[i] - b[i]).abs().max().item<float>(), 0.02) << i;
      EXPECT_GT((a[i] - before[i]).abs().max().item<float>(), 0.01) << i;
      difference += (a[i] - b[i]).square().sum().item<double>();
      way += (b[i] - before[i]).square().sum().item<double>();
    }
    EXPECT_LT(std::sqrt(difference / way), 0.1);
  }
}

// ---- Callbacks ----

TEST(MultiOptimizer, ShowsEachPartsGradientsAndEndsOneStepPerBatch) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  std::vector<std::string> events;
  const auto of_gradients = [&](const char* event, Learner& l) {
    std::set<std::string> parts;
    for (const NamedGradient& gradient : l.gradients()) {
      parts.insert(gradient.name.substr(0, gradient.name.find('.')));
    }
    ASSERT_EQ(parts.size(), 1U);
    events.push_back(event + (" of " + *parts.begin()));
  };
  learn->add<LambdaCallback>(
      {.on_backward_end = [&](Learner& l) { of_gradients("backward", l); },
       .on_step = [&](Learner& l) { of_gradients("step", l); },
       .on_step_end = [&](Learner&) { events.emplace_back("end"); },
       .on_batch_end =
           [&](Learner& l) {
             for (const ModelTensor& p : l.model().parameters()) {
               EXPECT_FALSE(p.tensor.grad().defined()) << p.name;
               EXPECT_TRUE(p.tensor.requires_grad()) << p.name;
             }
             l.state().stop_training = true;
           }});
  learn->fit(1);
  EXPECT_EQ(
      events,
      (std::vector<std::string>{
          "backward of critic",
          "step of critic",
          "backward of generator",
          "step of generator",
          "end"}));
}

TEST(MultiOptimizer, DoesNotStepAPartThatACallbackSkips) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  int64_t backwards = 0, ends = 0;
  // Skips every step of the critic.
  learn->add<LambdaCallback>(
      {.on_backward_end =
           [&](Learner& l) { l.state().skip_step = backwards++ % 2 == 0; },
       .on_step_end = [&](Learner&) { ++ends; }});
  learn->fit(1);
  EXPECT_EQ(ends, 8);
  const Gan before = tiny_gan();
  EXPECT_TRUE(torch::equal(
      gan->critic->parameters()[0],
      before->critic->parameters()[0]));
  EXPECT_FALSE(torch::equal(
      gan->generator->parameters()[0],
      before->generator->parameters()[0]));
}

// A precision policy with scripted step results and overflow flags on the
// device.
struct Scripted final : PrecisionPolicy {
  explicit Scripted(std::vector<StepResult> results, std::vector<float> flags)
      : results(std::move(results)), flags(std::move(flags)) {}
  void unscale(Learner&) override {}
  void abandon(Learner&, bool) override {}
  StepResult step(Learner& learn) override {
    learn.state().step_overflowed = torch::tensor(flags[next]);
    return results[next++];
  }
  void forward(Learner&, c10::function_ref<void()> compute) override {
    compute();
  }
  double loss_scale() const override { return 1; }
  torch::Tensor loss_scale_record() const override { return {}; }
  std::string precision_text() const override { return "scripted"; }

  std::vector<StepResult> results;
  std::vector<float> flags;
  size_t next = 0;
};

TEST(MultiOptimizer, ReportsASkippedStepOnlyIfAllPartsSkipped) {
  using enum StepResult;
  struct Case {
    std::vector<StepResult> results;
    std::vector<float> flags;
    StepResult expected;
    float flag;
  };
  const Case cases[] = {
      {{skipped, skipped}, {1, 1}, skipped, 0},
      {{skipped, stepped}, {1, 0}, stepped, 0},
      {{stepped, unknown}, {0, 1}, stepped, 0},
      {{unknown, unknown}, {1, 0}, unknown, 0},
      {{unknown, unknown}, {1, 1}, unknown, 1},
      {{skipped, unknown}, {1, 1}, unknown, 1}};
  for (const Case& c : cases) {
    const auto learn = learner_of(tiny_gan());
    learn->add<Scripted>(c.results, c.flags);
    learn->add<LambdaCallback>({.on_step_end = [&](Learner& l) {
      EXPECT_EQ(l.state().step_result, c.expected);
      EXPECT_EQ(l.state().step_overflowed.defined(), c.expected == unknown);
      if (c.expected == unknown) {
        EXPECT_EQ(l.state().step_overflowed.item<float>(), c.flag);
      }
      l.state().stop_training = true;
    }});
    learn->fit(1);
  }
}

TEST(MultiOptimizer, RecordsTheSumOfTheLosses) {
  Gan gan = tiny_gan();
  auto options = parts_of(gan);
  std::vector<double> sums;
  for (auto& part : options.parts) {
    part.loss = [&sums, is_first = sums.empty(), loss = part.loss](
                    const Batch& batch) mutable {
      torch::Tensor value = loss(batch);
      sums.push_back(value.item<float>());
      return value;
    };
  }
  const auto learn = learner_of(gan, options);
  learn->fit(1);
  const std::vector<double> losses = learn->recorder().losses();
  ASSERT_EQ(losses.size(), 8U);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_FLOAT_EQ(losses[i], sums[2 * i] + sums[2 * i + 1]);
  }
  double critic = 0;
  for (size_t i = 0; i < sums.size(); i += 2) critic += sums[i] / 8;
  EXPECT_NEAR(learn->state()["critic_loss"], critic, 1e-6);
}

TEST(MultiOptimizer, SchedulesEachPartsOwnLearningRate) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  std::vector<double> highest = {0, 0};
  learn->add<LambdaCallback>({.on_step = [&](Learner& l) {
    const auto rates = l.learning_rates();
    EXPECT_DOUBLE_EQ(rates[0] / rates[1], kCriticLr / kGeneratorLr);
    for (size_t i = 0; i < 2; ++i) {
      highest[i] = std::max(highest[i], rates[i]);
    }
  }});
  learn->fit_one_cycle(1);
  EXPECT_DOUBLE_EQ(highest[0], kCriticLr);
  learn->fit(1);
  EXPECT_EQ(learn->learning_rates(), (std::vector{kCriticLr, kGeneratorLr}));
  EXPECT_EQ(learn->optimizer().param_groups().size(), 2U);
}

TEST(MultiOptimizer, UsesTheLearningRatesOfAFit) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  learn->add<LambdaCallback>({.on_step = [](Learner& l) {
    EXPECT_EQ(l.learning_rates(), (std::vector{1e-2, 1e-4}));
  }});
  learn->fit(1, {1e-2, 1e-4});
}

TEST(MultiOptimizer, GivesFrozenPartsNoTurn) {
  for (const bool alternate : {false, true}) {
    Gan gan = tiny_gan();
    auto options = parts_of(gan);
    options.alternate = alternate;
    int64_t calls = 0;
    options.parts[1].loss = [&calls,
                             loss = options.parts[1].loss](const Batch& batch) {
      ++calls;
      return loss(batch);
    };
    options.parts[0].loss = [](const Batch&) -> torch::Tensor {
      ADD_FAILURE() << "the loss of a frozen part was computed";
      return {};
    };
    const auto learn = learner_of(gan, options);
    learn->freeze_to(1);
    learn->fit(1);
    EXPECT_EQ(calls, 8);
    EXPECT_TRUE(torch::equal(
        gan->critic->parameters()[0],
        tiny_gan()->critic->parameters()[0]));
    EXPECT_FALSE(gan->critic->parameters()[0].requires_grad());
  }
}

TEST(MultiOptimizer, IsNotChangedByADryRun) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  learn->fit(1);
  const Tensors before = weights_of(gan);
  StateDict state;  // copies: the optimizer's own tensors keep changing
  for (const auto& entry : optimizer_state(*learn)) {
    state.insert(entry.key(), entry.value().clone());
  }
  dry_run(*learn, 2);
  learn->lr_find({.num_it = 6});
  EXPECT_TRUE(all_equal(weights_of(gan), before));
  EXPECT_EQ(optimizer_state(*learn).size(), state.size());
  for (const auto& entry : optimizer_state(*learn)) {
    EXPECT_TRUE(torch::equal(entry.value(), *state.find(entry.key())))
        << entry.key();
  }
}

TEST(MultiOptimizer, RestoresOrdinaryTrainingWhenRemoved) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(
      gan,
      {},
      {.loss = Loss([](const Tensors& outputs, const Tensors&) {
         return outputs[0].square().mean();
       })});
  learn->fit(1);
  learn->remove(*learn->find<MultiOptimizer>());
  int64_t steps = 0;
  learn->add<LambdaCallback>({.on_loss_begin = [&](Learner& l) {
    EXPECT_EQ(l.state().outputs.size(), 1U);
    ++steps;
  }});
  learn->data().train = std::make_shared<DataLoader>(
      std::make_shared<TensorDataset>(
          Tensors{torch::randn({32, 4})},
          Tensors{torch::zeros({32, 2})}),
      DataLoaderOptions{.batch_size = 32, .workers = 0});
  learn->fit(1);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(learn->learning_rates(), std::vector<double>{3e-3});
}

// ---- Files ----

void expect_equal_states(Learner& a, Learner& b) {
  EXPECT_TRUE(all_equal(parameters_of(a), parameters_of(b)));
  const StateDict of_a = optimizer_state(a), of_b = optimizer_state(b);
  EXPECT_EQ(of_a.size(), of_b.size());
  for (const auto& entry : of_a) {
    const torch::Tensor* const other = of_b.find(entry.key());
    ASSERT_TRUE(other) << entry.key();
    EXPECT_TRUE(torch::equal(entry.value(), *other)) << entry.key();
  }
}

TEST(MultiOptimizer, CanBeResumedInTheMiddleOfATurn) {
  for (const bool in_amp : {false, true}) {
    const TempFolder folder;
    const auto make = [&](const Gan& gan) {
      auto options = parts_of(gan, in_amp ? kFusedAdam : kAdam);
      options.alternate = true;
      options.parts[0].steps = 3;
      if (!in_amp) options.parts[1].optimizer = kRmsprop;
      auto learn = learner_of(gan, options);
      if (in_amp) learn->to_amp({.dtype = torch::kHalf});
      torch::manual_seed(1);
      return learn;
    };
    const auto whole = make(tiny_gan());
    whole->fit_one_cycle(2);

    // Batch 10 is the second of epoch 1 and of the critic's turn.
    const auto cut = make(tiny_gan());
    cut->add<SaveCheckpoint>({.folder = folder / "run"});
    cut->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().iteration == 10) l.request_stop();
    }});
    cut->fit_one_cycle(2);
    EXPECT_EQ(cut->state().iteration, 10);

    const auto resumed = make(tiny_gan());
    resumed->add<SaveCheckpoint>({.folder = folder / "run"});
    resumed->resume(folder / "run");
    resumed->fit_one_cycle(2);
    EXPECT_EQ(resumed->state().iteration, 16);
    expect_equal_states(*resumed, *whole);
  }
}

TEST(MultiOptimizer, SavesAndLoadsAllOptimizers) {
  const TempFolder folder;
  Gan first = tiny_gan(), second = tiny_gan();
  auto options = parts_of(first);
  options.parts[1].optimizer = kRmsprop;
  const auto saved = learner_of(first, options, {.path = folder / ""});
  saved->fit(1);
  saved->save("gan");
  auto others = parts_of(second);
  others.parts[1].optimizer = kRmsprop;
  const auto loaded = learner_of(second, others, {.path = folder / ""});
  loaded->load("gan");
  expect_equal_states(*loaded, *saved);
  Gan third = tiny_gan();
  const auto of_other_kind = learner_of(third, {}, {.path = folder / ""});
  expect_error<DataError>(
      [&] { of_other_kind->load("gan"); },
      {"RMSprop", "Adam"});
}

// ---- What it rejects ----

TEST(MultiOptimizer, RejectsInvalidParts) {
  const auto loss = [](const Batch&) { return torch::Tensor(); };
  using Options = MultiOptimizer::Options;
  const std::vector<std::pair<Options, std::string>> cases = {
      {{.parts = {}}, "there are no parts"},
      {{.parts = {{.name = "", .loss = loss}}}, "a part is named \"\""},
      {{.parts = {{.name = "a", .loss = loss}, {.name = "a", .loss = loss}}},
       "unique name"},
      {{.parts = {{.name = "a", .loss = {}}}}, "\"a\" has no loss"},
      {{.parts = {{.name = "a", .loss = loss, .lr = -1}}}, "lr of part \"a\""},
      {{.parts = {{.name = "a", .loss = loss, .steps = 2}}}, ".alternate"},
      {{.parts = {{.name = "a", .loss = loss, .steps = 0}}, .alternate = true},
       "steps of part \"a\" is 0"}};
  for (const auto& [options, words] : cases) {
    expect_error<c10::ValueError>(
        [&, options = options] { MultiOptimizer{options}; },
        {words});
  }
}

TEST(MultiOptimizer, RejectsPartsThatDoNotCoverTheModel) {
  Gan gan = tiny_gan();
  auto options = parts_of(gan);
  options.parts[0].modules = {"critic.0"};
  expect_error<c10::ValueError>(
      [&] { learner_of(gan, options); },
      {"\"critic.2.weight\" is in no part"});
  options.parts[0].modules = {"critic", "generator.0"};
  expect_error<c10::ValueError>(
      [&] { learner_of(gan, options); },
      {"\"generator.0.weight\" is in the parts \"critic\" and \"generator\""});
  options.parts[0].modules = {"critic", "crit"};
  expect_error<c10::ValueError>(
      [&] { learner_of(gan, options); },
      {"part \"critic\" names \"crit\""});
  // Frozen parameters need no part; modules can name single parameters.
  options.parts[0].modules = {"critic.0.weight", "critic.0.bias"};
  for (auto& p : gan->critic[2]->parameters()) p.requires_grad_(false);
  learner_of(gan, options)->fit(1);
}

TEST(MultiOptimizer, NamesThePartWithAnInvalidLoss) {
  Gan gan = tiny_gan();
  const auto expect_refused = [&](auto loss, const char* words) {
    auto options = parts_of(gan);
    options.parts[1].loss = loss;
    expect_error<c10::ValueError>(
        [&] { learner_of(gan, options)->fit(1); },
        {"part \"generator\"", words});
  };
  expect_refused([](const Batch&) { return torch::Tensor(); }, "is undefined");
  expect_refused(
      [&](const Batch& b) { return gan->fakes(b); },
      "has 2 dimensions");
  // Depends only on the critic, which requires no gradients in this turn.
  expect_refused(
      [&](const Batch& b) { return gan->judge(b.inputs[0], 1); },
      "requires no gradient");
  expect_refused(
      [&](const Batch& b) { return gan->forward(b.inputs[0]).mean(); },
      "inputs [32, 2]");
  for (const auto& p : gan->parameters()) EXPECT_TRUE(p.requires_grad());
}

TEST(MultiOptimizer, RejectsUnsupportedCombinations) {
  const auto expect_refused = [](auto prepare, const char* words) {
    Gan gan = tiny_gan();
    expect_error<c10::ValueError>(
        [&] {
          const auto learn = learner_of(gan);
          prepare(*learn);
          learn->fit(1);
        },
        {words});
  };
  expect_refused(
      [](Learner& l) {
        l.add<GradientAccumulation>(
            GradientAccumulation::Options{.batches = 2});
      },
      "cannot accumulate gradients");
  expect_refused([](Learner& l) { l.add<MixUp>(); }, "MixUp");
  expect_refused(
      [](Learner& l) {
        l.add<LambdaCallback>({.on_step = [](Learner& learn) {
          learn.state().skip_zero_grad = true;
        }});
      },
      "skip_zero_grad");
  expect_refused(
      [](Learner& l) { parts_of(l).step.is_parallel = true; },
      "to_parallel");
  expect_refused(
      [](Learner& l) {
        set_step_graph(
            l,
            std::make_shared<StepGraph>(
                CudaGraphOptions{},
                torch::kCPU,
                [](torch::Device) { return nullptr; }));
      },
      "MultiOptimizer; omit one of the two");
  expect_refused(
      [](Learner& l) { l.split({"generator"}); },
      "MultiOptimizer defines the layer groups");
  Gan gan = tiny_gan();
  Learner learn(point_data(256, 0), gan, quiet());
  learn.optimizer();
  expect_error<c10::ValueError>(
      [&] { learn.add<MultiOptimizer>(parts_of(gan)); },
      {"before the first fit"});
}

TEST(MultiOptimizer, DoesNotStepPartsWhenALossIsNaN) {
  const auto sink = std::make_shared<MemorySink>();
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan, {}, {.sink = sink});
  learn->add<TerminateOnNaN>();
  learn->add<LambdaCallback>({.on_loss_begin = [](Learner& l) {
    if (l.state().batch == 2) l.state().batch_data.inputs[0].fill_(NAN);
  }});
  auto options = parts_of(gan);
  learn->remove(*learn->find<MultiOptimizer>());
  // The generator's loss reads no data and would not become NaN.
  options.parts[1].loss = [gan](const Batch& b) mutable {
    return gan->generator_loss(b) * b.inputs[0].mean();
  };
  learn->add<MultiOptimizer>(options);
  learn->fit(1);
  EXPECT_EQ(learn->state().iteration, 3);
  for (const torch::Tensor& p : gan->parameters()) {
    EXPECT_TRUE(p.isfinite().all().item<bool>());
  }
  EXPECT_EQ(sink->warnings.size(), 1u);
}

TEST(MultiOptimizer, CanFreezeAPartInTheTurnOfAnyPart) {
  enum When { backward_begin, backward_end, step };
  for (const bool is_half : {false, true}) {
    for (const int64_t turn : {0, 1}) {
      for (const When when : {backward_begin, backward_end, step}) {
        SCOPED_TRACE(fmt::format("{} {} {}", is_half, turn, int{when}));
        Gan gan = tiny_gan();
        const auto learn = learner_of(gan, parts_of(gan, kFusedAdam));
        if (is_half) learn->to_fp16({.force_fp16 = true});
        Tensors frozen, others;
        int64_t turns = 0;
        const auto act = [&](When now) {
          return [&, now](Learner& l) {
            if (now != when || turns != 4 + turn || !frozen.empty()) return;
            l.freeze_to(1);
            for (const auto& p : gan->critic->parameters()) {
              frozen.push_back(p.detach().clone());
            }
            others = weights_of(gan);
          };
        };
        learn->add<LambdaCallback>(
            {.on_backward_begin = act(backward_begin),
             .on_backward_end = act(backward_end),
             .on_step = act(step)});
        learn->add<LambdaCallback>(
            {.on_loss_begin = [&](Learner&) { ++turns; },
             .order = callback_order::kLast});
        turns = -1;
        learn->fit(1);
        ASSERT_FALSE(frozen.empty());
        for (size_t i = 0; i < frozen.size(); ++i) {
          const torch::Tensor p = gan->critic->parameters()[i];
          EXPECT_FALSE(p.requires_grad());
          EXPECT_TRUE(torch::equal(p, frozen[i])) << i;
        }
        EXPECT_TRUE(gan->generator->parameters()[0].requires_grad());
        EXPECT_FALSE(torch::equal(gan->parameters()[4], others[4]));
      }
    }
  }
}

TEST(MultiOptimizer, CanUnfreezeAPartInTheTurnOfAnother) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  learn->freeze_to(1);
  learn->add<LambdaCallback>({.on_step = [&](Learner& l) {
    if (l.state().batch == 2) l.unfreeze();
  }});
  learn->fit(1);
  EXPECT_TRUE(gan->critic->parameters()[0].requires_grad());
  EXPECT_FALSE(torch::equal(
      gan->critic->parameters()[0],
      tiny_gan()->critic->parameters()[0]));
}

TEST(MultiOptimizer, CannotFreezeAPartBetweenItsForwardPassAndItsLoss) {
  Gan gan = tiny_gan();
  const auto learn = learner_of(gan);
  learn->add<LambdaCallback>(
      {.on_loss_begin = [](Learner& l) { l.freeze_to(1); }});
  expect_error<c10::ValueError>(
      [&] { learn->fit(1); },
      {"part \"critic\" was frozen during its own step"});
}

TEST(MultiOptimizer, SupportsOptimizersThatCreateTheirStateInTheConstructor) {
  Gan gan = tiny_gan();
  const auto learn =
      learner_of(gan, parts_of(gan, optimizer<torch::optim::Adagrad>()));
  learn->fit(1);
  learn->freeze_to(1).fit(1);
  learn->unfreeze().fit(1);

  Gan by_hand = tiny_gan();
  HandLoop loop = loop_of(by_hand);
  loop.optimizers.clear();
  for (const auto& [net, lr] :
       {std::pair(by_hand->critic, kCriticLr),
        std::pair(by_hand->generator, kGeneratorLr)}) {
    loop.optimizers.push_back(std::make_unique<torch::optim::Adagrad>(
        net->parameters(),
        torch::optim::AdagradOptions(lr)));
  }
  Gan once = tiny_gan();
  torch::manual_seed(1);
  learner_of(once, parts_of(once, optimizer<torch::optim::Adagrad>()))->fit(1);
  torch::manual_seed(1);
  loop.fit(by_hand, 1);
  EXPECT_TRUE(all_equal(weights_of(once), weights_of(by_hand)));
}

}  // namespace
}  // namespace tern::multi_optimizer_test
