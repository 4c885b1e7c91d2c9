#include "tern/callbacks/precision/amp.h"

#include <cmath>
#include <stdexcept>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::amp_test {
namespace {

using namespace testing_support;  // NOLINT

MixedPrecision& amp_of(const Learner& learn) {
  return *learn.find<MixedPrecision>();
}

const AmpOptions kHalf = {.dtype = torch::kHalf};

bool autocast_is_on() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}

TEST(ToAmp, TrainsAsWellAsFp32WithWeightsInFloat) {
  double fp32 = 0;
  for (const int mode : {0, 1, 2}) {
    Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
    if (mode == 1) learn.to_amp();
    if (mode == 2) learn.to_amp(kHalf);
    learn.fit(5, 1e-2);
    const EpochRecord& last = learn.recorder().epochs().back();
    if (mode == 0) fp32 = last.valid_loss;
    EXPECT_NEAR(last.valid_loss, fp32, 0.02);
    EXPECT_GT(last.metrics[0].value, 0.9);
    for (const ModelTensor& p : learn.model().parameters()) {
      EXPECT_EQ(p.tensor.scalar_type(), torch::kFloat);
    }
  }
}

TEST(ToAmp, WarnsThroughTheSinkIfAllUpdatesAreSkipped) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(),
      point_net(),
      {.loss = Loss([](torch::Tensor pred, torch::Tensor) {
         return pred.sum() * INFINITY;
       }),
       .sink = sink});
  learn.to_amp(kHalf).fit(8);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("50 updates in a row"), std::string::npos);
}

// A smaller version of the end-to-end example of Effective PyTorch.
TEST(ToAmp, FitsACheckerboardAsWellAsFp32) {
  const auto final_loss = [](bool amp) {
    torch::manual_seed(1);
    torch::nn::Sequential net;
    for (const int64_t in : {2, 64, 64}) {
      net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, 64, 1)));
      net->push_back(torch::nn::BatchNorm2d(64));
      net->push_back(torch::nn::ReLU());
    }
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 1, 1)));
    const auto row =
        torch::arange(32).view({1, 1, 1, 32}).expand({1, 1, 32, 32});
    const auto column = row.transpose(2, 3);
    const auto x = torch::cat({row, column}, 1).to(torch::kFloat) / 32;
    const auto y = ((row / 16).floor() + (column / 16).floor())
                       .remainder(2)
                       .to(torch::kFloat);
    DataBunch data = DataBunch::create(
        std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
        nullptr,
        {.batch_size = 1, .workers = 0});
    data.device = torch::kCPU;
    Learner learn(
        data,
        net,
        quiet(
            {.optimizer =
                 optimizer<torch::optim::Adam>(torch::optim::AdamOptions(1e-3)),
             .weight_decay = 0}));
    if (amp) learn.to_amp();
    learn.fit(60, 1e-3);
    const auto& losses = learn.recorder().losses();
    EXPECT_LT(losses.back(), 0.8 * losses.front());
    return losses.back();
  };
  const double fp32 = final_loss(false);
  EXPECT_NEAR(final_loss(true), fp32, 0.05 * fp32);
}

TEST(ToAmp, UsesPythonsDefaults) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_amp();
  EXPECT_EQ(amp_of(learn).dtype(), torch::kBFloat16);
  EXPECT_FALSE(amp_of(learn).scaler().is_enabled());
  learn.to_amp(kHalf);
  EXPECT_TRUE(amp_of(learn).scaler().is_enabled());
  EXPECT_EQ(amp_of(learn).scaler().get_scale(), 65536);
  EXPECT_EQ(amp_of(learn).scaler().get_growth_interval(), 2000);
}

// Autocast is enabled only in forward and loss; other events must run without
// it.
TEST(ToAmp, KeepsBackwardStepAndBatchesOutsideTheGuard) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_amp();
  int events = 0;
  const auto expect = [&](bool on) {
    return [&events, on](Learner&) {
      ++events;
      EXPECT_EQ(autocast_is_on(), on);
    };
  };
  learn.add<LambdaCallback>(
      {.on_train_begin = expect(false),
       .on_batch_begin = expect(false),
       .on_loss_begin = expect(true),
       .on_backward_begin = expect(false),
       .on_backward_end = expect(false),
       .on_step = expect(false),
       .on_step_end = expect(false),
       .on_batch_end = expect(false)});
  const AutocastGuard guard_of_the_caller(torch::kCPU);
  learn.fit(1);
  EXPECT_GT(events, 8);
  EXPECT_TRUE(autocast_is_on());
}

TEST(ToAmp, GivesTheLossFp32OutputsUnlessDisabled) {
  for (const bool loss_fp32 : {true, false}) {
    torch::ScalarType seen{};
    Learner learn(
        point_data(),
        point_net(),
        quiet({.loss = Loss([&](torch::Tensor pred, torch::Tensor target) {
                 seen = pred.scalar_type();
                 return torch::nn::functional::cross_entropy(pred, target);
               })}));
    learn.to_amp({.loss_fp32 = loss_fp32}).fit(1);
    EXPECT_EQ(seen, loss_fp32 ? torch::kFloat : torch::kBFloat16);
  }
}

TEST(ToAmp, ValidatesInFp32OnRequest) {
  for (const bool in_valid : {true, false}) {
    Learner learn(point_data(), point_net(), quiet());
    learn.to_amp({.amp_in_valid = in_valid});
    bool on = !in_valid;
    learn.add<LambdaCallback>({.on_loss_begin = [&](Learner& l) {
      if (!l.state().training) on = autocast_is_on();
    }});
    learn.fit(1);
    EXPECT_EQ(on, in_valid);
    on = !in_valid;
    learn.predict(torch::ones({2}));
    EXPECT_EQ(on, in_valid);
  }
}

TEST(ToAmp, SkipsAnOverflowAndChangesNothingElse) {
  for (const bool fused : {true, false}) {
    Learner learn(
        point_data(32 * 4),
        point_net(),
        quiet(
            {.optimizer =
                 fused ? optimizer<optim::AdamW>(torch::optim::AdamWOptions())
                       : optimizer<torch::optim::Adam>(
                             torch::optim::AdamOptions())}));
    learn.to_amp(kHalf).add(overflow_at({2}));
    Tensors before;
    StepResult result{};
    learn.add<LambdaCallback>(
        {.on_step =
             [&](Learner& l) {
               if (l.state().iteration == 2) before = parameters_of(l);
             },
         .on_step_end =
             [&](Learner& l) {
               if (l.state().iteration != 2) return;
               result = l.state().step_result;
               EXPECT_TRUE(all_equal(parameters_of(l), before));
             }});
    learn.fit(1);
    EXPECT_FALSE(before.empty());
    EXPECT_EQ(result, StepResult::skipped);
    EXPECT_EQ(amp_of(learn).scaler().get_scale(), 32768);
    EXPECT_EQ(amp_of(learn).scaler().growth_tracker(), 1);
  }
}

TEST(ToAmp, RecordsTheUnscaledLoss) {
  double first = 0;
  for (const double scale : {1., 65536.}) {
    Learner learn(point_data(), point_net(), quiet());
    learn.to_amp(
        {.dtype = torch::kHalf,
         .scaler = GradScalerOptions{.init_scale = scale}});
    learn.fit(1);
    const double loss = learn.recorder().losses().at(0);
    if (first == 0) first = loss;
    EXPECT_EQ(loss, first);
    EXPECT_LT(loss, 2);
  }
}

TEST(ToAmp, KeepsTheScaleAndTheMomentsAcrossFits) {
  Learner twice(point_data(), point_net(), quiet());
  twice.to_amp(kHalf).add(overflow_at({1}));
  twice.fit(1).fit(1);
  EXPECT_EQ(amp_of(twice).scaler().get_scale(), 32768);
  Learner once(point_data(), point_net(), quiet());
  once.to_amp(kHalf).add(overflow_at({1}));
  once.fit(2);
  EXPECT_TRUE(all_equal(parameters_of(twice), parameters_of(once)));
}

TEST(ToAmp, EndsWithToFp32) {
  Learner amp(point_data(), point_net(), quiet());
  amp.to_amp().to_fp32().fit(1);
  Learner plain(point_data(), point_net(), quiet());
  plain.fit(1);
  EXPECT_TRUE(all_equal(parameters_of(amp), parameters_of(plain)));
  EXPECT_EQ(amp.callbacks().size(), plain.callbacks().size());
}

TEST(ToAmp, ReplacesToBf16AndViceVersa) {
  Learner learn(point_data(), point_net(), quiet());
  const size_t callbacks = learn.callbacks().size();
  learn.to_bf16().to_amp();
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), torch::kFloat);
  learn.to_bf16();
  EXPECT_EQ(
      parts_of(learn).precision->precision_text(),
      "bf16 model, fp32 master weights");
  EXPECT_EQ(learn.callbacks().size(), callbacks + 1);
  learn.fit(1);
}

TEST(ToAmp, LeavesAutocastOffWhenACallbackThrowsInTheGuard) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_amp(kHalf);
  bool throws = true;
  learn.add<LambdaCallback>({.on_loss_begin = [&](Learner&) {
    if (throws) throw std::runtime_error("cancelled");
  }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_FALSE(autocast_is_on());
  throws = false;
  learn.fit(1);
}

TEST(Fit, LeavesNoStaleWeightsInTheCallersAutocastCache) {
  Learner learn(point_data(), point_net(), quiet());
  const torch::Tensor x = torch::randn({4, 2});
  learn.model().eval();
  const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
  const torch::Tensor before = learn.model().forward({x})[0];
  learn.fit(1, 0.1);
  learn.model().eval();
  const torch::Tensor after = learn.model().forward({x})[0];
  at::autocast::clear_cache();
  EXPECT_FALSE(torch::equal(before, after));
  EXPECT_TRUE(torch::equal(after, learn.model().forward({x})[0]));
}

TEST(ToAmp, SavesTheLossScaleInItsState) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_amp(kHalf).add(overflow_at({0}));
  learn.fit(1);
  const StateDict state = amp_of(learn).state_dict();
  EXPECT_EQ(state.keys().size(), 5u);

  Learner other_learner(point_data(), point_net(), quiet());
  MixedPrecision& other = amp_of(other_learner.to_amp(kHalf));
  other.load_state_dict(state);
  EXPECT_EQ(other.scaler().get_scale(), 32768);
  EXPECT_EQ(
      other.scaler().growth_tracker(),
      amp_of(learn).scaler().growth_tracker());

  Learner bf16(point_data(), point_net(), quiet());
  const MixedPrecision& without_scale = amp_of(bf16.to_amp());
  EXPECT_TRUE(without_scale.state_dict().is_empty());
  expect_error<c10::ValueError>(
      [&] { other.load_state_dict(without_scale.state_dict()); },
      {"no loss scale"});
}

TEST(ToAmp, RejectsBceOfProbabilitiesOnCuda) {
  const Loss bce = torch::nn::BCELoss();
  expect_error<c10::ValueError>(
      [&] { bce.check_autocast(torch::kCUDA); },
      {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"});
  bce.check_autocast(torch::kCPU);
  Loss(torch::nn::BCEWithLogitsLoss()).check_autocast(torch::kCUDA);
}

TEST(ToAmp, RejectsOptionsOutOfRangeAndKeepsThePrecision) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_bf16();
  expect_error<c10::ValueError>(
      [&] { learn.to_amp({.dtype = torch::kDouble}); },
      {"Double", "kHalf or kBFloat16"});
  expect_error<c10::ValueError>(
      [&] { learn.to_amp({.scaler = GradScalerOptions{.growth_factor = 1}}); },
      {"growth factor must be > 1.0"});
  EXPECT_TRUE(master_weights(learn));
}

}  // namespace
}  // namespace tern::amp_test
