#include "tern/callbacks/averages/ema.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::ema_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner(const OptimizerFactory& optimizer = {}) {
  return std::make_unique<Learner>(
      point_data(),
      point_net(),
      quiet({.optimizer = optimizer, .metrics = {accuracy()}}));
}

// Computes the average of the fp32 weights after each step by the formula.
struct Formula : Callback {
  explicit Formula(double decay) : decay(decay) {}
  void on_step_end(Learner& l) override {
    if (l.state().step_result == StepResult::skipped) return;
    Tensors now;
    for (const ModelTensor& p : l.model().parameters()) {
      now.push_back(
          (master_weights(l) ? master_weights(l)->of(p.tensor) : p.tensor)
              .detach()
              .to(torch::kDouble));
    }
    ++steps;
    const double d = std::min(decay, (1.0 + steps) / (10.0 + steps));
    for (size_t i = 0; i < now.size(); ++i) {
      average.size() < now.size()
          ? average.push_back(now[i].clone())
          : (void)(average[i] = d * average[i] + (1 - d) * now[i]);
    }
  }
  int order() const override { return callback_order::kLast; }

  double decay;
  int steps = 0;
  Tensors average;
};

void expect_close(const Tensors& a, const Tensors& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(
        a[i].to(torch::kDouble),
        b[i].to(torch::kDouble),
        tolerance,
        tolerance))
        << i;
  }
}

TEST(Ema, LeavesTheAverageInTheModel) {
  for (const bool is_amp : {false, true}) {
    const auto learn = learner();
    if (is_amp) learn->to_amp({.dtype = torch::kHalf});
    const auto formula = std::make_shared<Formula>(0.9);
    learn->add<Ema>(0.9).add(formula).add(overflow_at({3})).fit(3);
    EXPECT_EQ(formula->steps, is_amp ? 23 : 24);
    if (is_amp) expect_close(parameters_of(*learn), formula->average, 1e-5);
  }
}

TEST(Ema, AveragesTheMasterWeightsInHalfPrecision) {
  const auto learn = learner();
  const auto formula = std::make_shared<Formula>(0.9);
  learn->to_fp16({.force_fp16 = true}).add<Ema>(0.9).add(formula).fit(3);
  expect_close(parameters_of(*learn), formula->average, 1e-2);
  for (const ModelTensor& p : learn->model().parameters()) {
    const torch::Tensor average = master_weights(*learn)->of(p.tensor);
    EXPECT_TRUE(p.tensor.equal(average.to(p.tensor.scalar_type()))) << p.name;
  }
  expect_close(parameters_of(learn->to_fp32()), formula->average, 1e-5);
}

TEST(Ema, DoesNotChangeTrainingInOneFitOrInTwo) {
  // Ema also swaps Lookahead's slow weights.
  const std::vector<std::pair<bool, OptimizerFactory>> trainings = {
      {false, {}},
      {true, {}},
      {false, ranger()}};
  for (const auto& [half, optimizer] : trainings) {
    const auto train = [&](bool with, int64_t fits) {
      const auto learn = learner(optimizer);
      if (half) learn->to_fp16({.force_fp16 = true});
      if (with) learn->add<Ema>({.decay = 0.9});
      for (int64_t i = 0; i < fits; ++i) {
        learn->fit(2);
        learn->validate();
        learn->get_preds();
      }
      if (with) learn->find<Ema>()->restore(*learn);
      return parameters_of(learn->to_fp32());
    };
    EXPECT_TRUE(all_equal(train(true, 1), train(false, 1)));
    EXPECT_TRUE(all_equal(train(true, 2), train(false, 2)));
  }
}

TEST(Ema, IsWhatValidationEvaluates) {
  const auto learn = learner();
  learn->add<Ema>(0.9).fit(2);
  const double shown = learn->recorder().epochs().back().valid_loss;
  EXPECT_DOUBLE_EQ(learn->validate().loss, shown);
  // Also while the model holds the training weights.
  learn->find<Ema>()->restore(*learn);
  EXPECT_DOUBLE_EQ(learn->validate().loss, shown);
  learn->remove(*learn->find<Ema>());
  EXPECT_NE(learn->validate().loss, shown);
}

TEST(Ema, ContinuesWithWeightsWrittenBetweenFits) {
  const auto learn = learner();
  learn->add<Ema>(0.9).fit(2);
  {
    const torch::NoGradGuard no_grad;
    for (ModelTensor& p : learn->model().parameters()) p.tensor.fill_(0.25);
  }
  Tensors at_begin;
  learn->add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    if (at_begin.empty()) at_begin = parameters_of(l);
  }});
  learn->fit(1);
  EXPECT_EQ(at_begin[0].min().item<float>(), 0.25f);
}

TEST(Ema, LeavesTheTrainingWeightsAfterAnException) {
  const auto learn = learner();
  Tensors last;
  learn->add<Ema>(0.9).add<LambdaCallback>(
      {.on_step_end = [&](Learner& l) { last = parameters_of(l); },
       .on_eval_begin =
           [](Learner& l) {
             if (l.state().epoch == 1) throw std::runtime_error("stop");
           },
       .order = callback_order::kLast});
  EXPECT_THROW(learn->fit(3), std::runtime_error);
  EXPECT_TRUE(all_equal(parameters_of(*learn), last));
}

TEST(Ema, IsNotChangedByADryRun) {
  const auto train = [](bool find) {
    const auto learn = learner();
    learn->add<Ema>(0.9);
    if (find) learn->lr_find({.num_it = 8});
    learn->fit(1);
    if (find) learn->lr_find({.num_it = 8});
    learn->fit(1);
    return parameters_of(*learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(Ema, ContinuesFromItsSavedState) {
  const auto whole = learner();
  whole->add<Ema>({.decay = 0.9, .at_end = false}).fit(1);
  const StateDict saved = whole->find<Ema>()->state_dict();
  whole->fit(1);

  const auto ema = std::make_shared<Ema>(Ema::Options{.decay = 0.9});
  ema->load_state_dict(saved);
  const auto again = learner();
  again->fit(1);
  again->add(ema).fit(1);
  whole->find<Ema>()->apply(*whole);
  EXPECT_TRUE(all_equal(parameters_of(*whole), parameters_of(*again)));
  StateDict wrong;
  wrong.insert("average.x", torch::zeros(1));
  expect_error<c10::ValueError>(
      [&] { ema->load_state_dict(wrong); },
      {"[Ema]", "no \"steps\""});
}

TEST(Ema, RejectsTheAveragesOfADifferentModel) {
  const auto learn = learner();
  learn->add<Ema>({.at_end = false}).fit(1);
  const auto ema = std::make_shared<Ema>();
  ema->load_state_dict(learn->find<Ema>()->state_dict());
  Learner other(
      point_data(),
      torch::nn::Sequential(torch::nn::Linear(2, 2)),
      quiet());
  other.add(ema);
  expect_error<c10::ValueError>(
      [&] { other.validate(); },
      {"a different "
       "model"});
  expect_error<c10::ValueError>(
      [&] { other.fit(1); },
      {"(8 tensors)", "this model's 2 tensors"});
}

TEST(Ema, RejectsASecondAverage) {
  const auto learn = learner();
  learn->add<Ema>();
  expect_error<c10::ValueError>([&] { learn->add<Ema>(); }, {"Ema and Ema"});
  expect_error<c10::ValueError>([&] { learn->add<Swa>(); }, {"Ema and Swa"});
}

TEST(Ema, RejectsADecayOutOfRange) {
  for (const double decay : {-0.1, 1.0}) {
    expect_error<c10::ValueError>([&] { Ema ema(decay); }, {"[Ema] decay is"});
  }
}

TEST(Ema, AveragesTrainedWeightsAndNoFrozenWeightsOfLora) {
  Learner learn(
      point_data(),
      add_lora(point_net(), {.rank = 2, .targets = {"0"}, .train = {"3"}}),
      quiet());
  learn.to_fp16({.force_fp16 = true}).add<Ema>(0.9).fit(1);
  std::vector<std::string> names;
  for (const auto& item : learn.find<Ema>()->state_dict()) {
    if (item.key().starts_with("average.")) names.push_back(item.key());
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "average.0.lora_A.weight",
          "average.0.lora_B.weight",
          "average.3.weight",
          "average.3.bias"}));
}

TEST(Ema, DoesNotChangeUntrainedTensors) {
  // Doubles that fp32 cannot represent, and a buffer that fp16 cannot.
  struct NetImpl : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
    torch::Tensor scale = register_parameter(
        "scale",
        torch::full({1}, 1.0 / 3, torch::kDouble),
        /*requires_grad=*/false);
    torch::Tensor large = register_buffer("large", torch::full({1}, 100001.0));
    torch::Tensor forward(const torch::Tensor& x) {
      return layer(x) * scale.to(x.scalar_type());
    }
  };
  for (const bool is_half : {false, true}) {
    const auto net = std::make_shared<NetImpl>();
    Learner learn(point_data(), net, quiet());
    if (is_half) learn.to_fp16({.force_fp16 = true});
    learn.add<Ema>(0.9).fit(2);
    if (!is_half) EXPECT_EQ(net->scale.item<double>(), 1.0 / 3);
    EXPECT_EQ(learn.state_dict()["large"].item<float>(), 100001.f);
  }
}

struct WeightOn : torch::nn::Module {
  explicit WeightOn(torch::Device device)
      : weight(register_parameter("weight", torch::ones({2, 2}, device))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weight); }
  torch::Tensor weight;
};

// Checkpoints are loaded onto the CPU. The meta device stands in for a GPU.
TEST(Ema, LoadedAveragesMoveToTheDeviceOfTheWeights) {
  const auto learner_on = [](torch::Device device) {
    DataBunch data = point_data();
    data.device = device;
    return std::make_unique<Learner>(
        data,
        std::make_shared<WeightOn>(device),
        quiet());
  };
  const auto on_cpu = learner_on(torch::kCPU);
  on_cpu->add<Ema>({.decay = 0.9, .at_end = false}).fit(1);
  const StateDict saved = on_cpu->find<Ema>()->state_dict();
  for (const bool is_fitting : {false, true}) {
    const auto on_meta = learner_on(torch::kMeta);
    Ema ema(0.9);
    if (is_fitting) ema.on_train_begin(*on_meta);
    ema.load_state_dict(saved);
    if (!is_fitting) ema.on_train_begin(*on_meta);
    EXPECT_TRUE(ema.state_dict()["average.weight"].is_meta()) << is_fitting;
  }
}

// Returns the outputs of a second model, into which the averages are copied.
torch::Tensor by_hand(const Ema& ema, const torch::Tensor& input) {
  auto teacher = point_net();
  const torch::NoGradGuard no_grad;
  const StateDict state = ema.state_dict();
  for (auto& p : teacher->named_parameters()) {
    p.value().copy_(state["average." + p.key()]);
  }
  for (auto& b : teacher->named_buffers()) {
    if (b.value().is_floating_point()) {
      b.value().copy_(state["average." + b.key()]);
    }
  }
  teacher->eval();
  return teacher->forward(input).to(torch::kFloat);  // 16 bits in autocast
}

TEST(Ema, CanBeEvaluatedWithinAStepAsASecondNetwork) {
  for (const char* const precision : {"fp32", "amp", "bf16"}) {
    const std::string name = precision;
    const auto train = [&](bool with_teacher) {
      const auto learn = learner();
      if (name == "amp") learn->to_amp({.dtype = torch::kBFloat16});
      if (name == "bf16") learn->to_bf16();
      const auto ema = std::make_shared<Ema>(0.9);
      learn->add(ema);
      const auto look = [&, ema](Learner& l) {
        if (!l.state().training) return;
        const torch::Tensor input = l.state().batch_data.inputs[0];
        const torch::Tensor teacher = ema->forward(l, {input})[0];
        EXPECT_FALSE(teacher.requires_grad());
        EXPECT_EQ(teacher.scalar_type(), torch::kFloat);
        if (l.state().iteration < 3) return;
        const double tolerance = name == "fp32" ? 1e-5 : 0.05;
        EXPECT_TRUE(torch::allclose(
            teacher,
            by_hand(*ema, input.to(torch::kFloat)),
            tolerance,
            tolerance))
            << name;
        EXPECT_TRUE(l.model().is_training());
      };
      // Also called between forward and loss, where the autocast cache is
      // filled.
      if (with_teacher) {
        learn->add<LambdaCallback>(
            {.on_loss_begin = look, .on_backward_begin = look});
      }
      learn->fit(1);
      return parameters_of(*learn);
    };
    EXPECT_TRUE(all_equal(train(true), train(false))) << name;
  }
}

TEST(Ema, IsTheModelItselfBeforeTheFirstStep) {
  const auto learn = learner();
  const auto ema = std::make_shared<Ema>(0.9);
  learn->add(ema);
  const torch::Tensor input = torch::rand({4, 2});
  const torch::Tensor teacher = ema->forward(*learn, {input})[0];
  EXPECT_TRUE(learn->model().is_training());
  {
    const torch::NoGradGuard no_grad;
    const EvalModeGuard eval(learn->model());
    EXPECT_TRUE(torch::equal(teacher, learn->model().forward({input})[0]));
  }
  expect_error<c10::ValueError>(
      [&] { ema->forward(*learn, {}); },
      {"Ema::forward", "no input"});
}

TEST(Ema, RestoresTheModelIfItsForwardPassThrows) {
  const auto learn = learner();
  const auto ema =
      std::make_shared<Ema>(Ema::Options{.decay = 0.9, .at_end = false});
  learn->add(ema).fit(1);
  const Tensors before = parameters_of(*learn);  // without the average
  EXPECT_ANY_THROW(ema->forward(*learn, {torch::rand({4, 3})}));
  EXPECT_TRUE(all_equal(parameters_of(*learn), before));
  EXPECT_NO_THROW(learn->fit(1));
}

}  // namespace
}  // namespace tern::ema_test
