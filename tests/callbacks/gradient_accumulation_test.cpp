#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::gradient_accumulation_test {
namespace {

using namespace testing_support;  // NOLINT

// Not shuffled, so that batches of any size contain the samples in the same
// order.
std::unique_ptr<Learner>
learner(int64_t samples, int64_t batch_size, Sink sink = silent()) {
  return std::make_unique<Learner>(
      [&] {
        DataBunch data = point_data(samples, 0);
        data.train = std::make_shared<DataLoader>(
            points(samples, 1),
            DataLoaderOptions{.batch_size = batch_size, .workers = 0});
        return data;
      }(),
      plain_net(),
      quiet(
          {.optimizer = optimizer<optim::SGD>(
               torch::optim::SGDOptions(0.1).momentum(0.9)),
           .sink = std::move(sink)}));
}

void expect_close(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-6)) << "parameter " << i;
  }
}

// Reads gradients like a callback that does not account for accumulation.
struct GradientWatcher final : Callback {
  void on_backward_end(Learner& learn) override { learn.gradients(); }
  void on_step(Learner& learn) override { learn.gradients(); }
  int order() const override { return callback_order::kMixedPrecision + 5; }
};

TEST(GradientAccumulation, IsNotDisturbedByCallbacksThatReadGradients) {
  using Mode = void (*)(Learner&);
  for (const Mode mode :
       {Mode([](Learner& l) { l.to_bf16(); }),
        Mode([](Learner& l) { l.to_fp16({.force_fp16 = true}); }),
        Mode([](Learner& l) { l.to_amp({.dtype = torch::kHalf}); })}) {
    const auto sink = std::make_shared<MemorySink>();
    const auto plain = learner(64, 8), watched = learner(64, 8, sink);
    watched->add<GradientWatcher>();
    for (Learner* learn : {plain.get(), watched.get()}) {
      mode(*learn);
      learn->add<GradientAccumulation>(
          GradientAccumulation::Options{.batches = 4});
      learn->fit(2);
    }
    expect_close(parameters_of(*watched), parameters_of(*plain));
    EXPECT_TRUE(sink->warnings.empty());
  }
}

struct Case {
  const char* name;
  GradientAccumulation::Options options;
  int64_t samples, small, large;
};

class GradientAccumulationTest : public testing::TestWithParam<Case> {};

TEST_P(GradientAccumulationTest, EqualsTrainingWithOneLargeBatch) {
  const Case& c = GetParam();
  const auto large = learner(c.samples, c.large);
  const auto small = learner(c.samples, c.small);
  large->fit(1).fit(2);
  small->add<GradientAccumulation>(c.options).fit(1).fit(2);
  expect_close(parameters_of(*small), parameters_of(*large));
}

INSTANTIATE_TEST_SUITE_P(
    Windows,
    GradientAccumulationTest,
    testing::Values(
        Case{"by_batches", {.batches = 4}, 128, 8, 32},
        Case{"by_samples", {.samples = 32}, 128, 8, 32},
        Case{"with_a_short_tail", {.batches = 4}, 76, 8, 32},
        Case{"with_a_short_last_batch", {.batches = 3}, 53, 8, 24},
        Case{"window_larger_than_the_epoch", {.batches = 100}, 40, 8, 64},
        Case{"windows_of_one", {.batches = 1}, 40, 8, 8}),
    [](const auto& info) { return info.param.name; });

TEST(GradientAccumulation, EqualsTrainingWithOneLargeBatchInFp16) {
  const auto large = learner(128, 32), small = learner(128, 8);
  large->to_fp16({.force_fp16 = true}).fit(2);
  small->to_fp16({.force_fp16 = true})
      .add<GradientAccumulation>({.batches = 4})
      .fit(2);
  const Tensors a = parameters_of(small->to_fp32());
  const Tensors b = parameters_of(large->to_fp32());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], b[i], 0, 1e-3)) << i;
  }
}

TEST(GradientAccumulation, KeepsTheScaleWithinAWindow) {
  const auto learn = learner(96, 8);
  learn->to_amp(
      {.dtype = torch::kHalf,
       .scaler = GradScalerOptions{.init_scale = 4, .growth_interval = 1}});
  learn->add<GradientAccumulation>({.batches = 3});
  std::vector<double> scales;
  learn->add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
    scales.push_back(l.state().scaler->get_scale());
  }});
  learn->fit(1);
  EXPECT_EQ(
      scales,
      (std::vector<double>{4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64}));
}

TEST(GradientAccumulation, SkipsTheWholeWindowOnceForOneOverflow) {
  const auto learn = learner(96, 8);
  learn->to_amp({.dtype = torch::kHalf});
  learn->add<GradientAccumulation>({.batches = 3}).add(overflow_at({4}));
  int64_t changes = 0;
  Tensors before;
  learn->add<LambdaCallback>(
      {.on_batch_begin = [&](Learner& l) { before = parameters_of(l); },
       .on_batch_end =
           [&](Learner& l) {
             changes += !all_equal(before, parameters_of(l));
           }});
  double scale = 0;
  learn->add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
    scale = l.state().scaler->get_scale();
  }});
  learn->fit(1);
  EXPECT_EQ(changes, 3);
  EXPECT_EQ(scale, 32768);
}

TEST(GradientAccumulation, ClipsOnlyAtTheEndOfAWindow) {
  const auto learn = learner(96, 8);
  learn->to_amp({.dtype = torch::kHalf});
  learn->add<GradientAccumulation>({.batches = 3}).add<GradientClip>(1e9);
  const auto plain = learner(96, 8);
  plain->to_amp({.dtype = torch::kHalf});
  plain->add<GradientAccumulation>({.batches = 3});
  EXPECT_TRUE(
      all_equal(parameters_of(learn->fit(1)), parameters_of(plain->fit(1))));
}

TEST(GradientAccumulation, StartsANewWindowAfterAFailedFit) {
  const auto learn = learner(96, 8);
  learn->add<GradientAccumulation>({.batches = 3});
  bool fails = true;
  learn->add<LambdaCallback>({.on_backward_end = [&](Learner& l) {
    if (fails && l.state().batch == 1) throw std::runtime_error("stop");
  }});
  EXPECT_THROW(learn->fit(1), std::runtime_error);
  fails = false;
  const auto fresh = learner(96, 8);
  fresh->add<GradientAccumulation>({.batches = 3}).fit(1);
  expect_close(parameters_of(learn->fit(1)), parameters_of(*fresh));
}

TEST(GradientAccumulation, StepsWithAPartialWindowBeforeAKnownStop) {
  const auto stopped = learner(96, 8), whole = learner(96, 8);
  stopped->add<GradientAccumulation>({.batches = 4})
      .add<StopAfterNBatches>(6)
      .fit(1);
  whole->add<GradientAccumulation>({.batches = 4})
      .add<LimitBatches>({.train = 6})
      .fit(1);
  EXPECT_TRUE(all_equal(parameters_of(*stopped), parameters_of(*whole)));
}

TEST(GradientAccumulation, DropsAPartialWindowAtAStopAfterTheStep) {
  const auto stopped = learner(96, 8), whole = learner(96, 8);
  stopped->add<GradientAccumulation>({.batches = 4})
      .add<LambdaCallback>(
          {.on_batch_end =
               [](Learner& l) {
                 if (l.state().batch == 5) l.state().stop_training = true;
               }})
      .fit(1);
  whole->add<GradientAccumulation>({.batches = 4})
      .add<LimitBatches>({.train = 4})
      .fit(1);
  EXPECT_TRUE(all_equal(parameters_of(*stopped), parameters_of(*whole)));
}

TEST(GradientAccumulation, DropsAPartialWindowWhenAnEpochEndsEarly) {
  const auto ended = learner(96, 8), whole = learner(96, 8);
  ended->add<GradientAccumulation>({.batches = 4})
      .add<LambdaCallback>(
          {.on_batch_end =
               [](Learner& l) {
                 if (l.state().batch == 5) l.state().stop_epoch = true;
               }})
      .fit(2);
  whole->add<GradientAccumulation>({.batches = 4})
      .add<LimitBatches>({.train = 4})
      .fit(2);
  EXPECT_TRUE(all_equal(parameters_of(*ended), parameters_of(*whole)));
}

TEST(GradientAccumulation, CompletesTheWindowInWhichAStopIsRequested) {
  const auto stopped = learner(96, 8), whole = learner(96, 8);
  stopped->add<GradientAccumulation>({.batches = 4})
      .add<LambdaCallback>(
          {.on_batch_end =
               [](Learner& l) {
                 if (l.state().batch == 5) l.request_stop();
               }})
      .fit(1);
  whole->add<GradientAccumulation>({.batches = 4})
      .add<LimitBatches>({.train = 8})
      .fit(1);
  EXPECT_TRUE(all_equal(parameters_of(*stopped), parameters_of(*whole)));
}

TEST(GradientAccumulation, CannotBeAddedTwice) {
  const auto learn = learner(96, 8);
  learn->add<GradientAccumulation>({.batches = 3});
  expect_error<c10::ValueError>(
      [&] { learn->add<GradientAccumulation>({.batches = 2}); },
      {"both accumulate gradients"});
}

TEST(GradientAccumulation, RequiresExactlyOneSize) {
  for (const GradientAccumulation::Options options :
       {GradientAccumulation::Options{},
        GradientAccumulation::Options{.batches = 2, .samples = 8},
        GradientAccumulation::Options{.batches = -1}}) {
    expect_error<c10::ValueError>(
        [&] { GradientAccumulation callback(options); },
        {"expected one of them >= 1"});
  }
}

}  // namespace
}  // namespace tern::gradient_accumulation_test
