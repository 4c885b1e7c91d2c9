// A program that is stopped at any moment, in any way, and restarted with
// resume ends bit-identical to the undisturbed program, whatever it does
// between its fits.

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/diagnose/plan.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/same_end.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::stops_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

enum class Way { request, signal, exception };

// Counts the events of the program's training and stops the program at one of
// them.
class StopAt final : public Callback {
 public:
  StopAt(int64_t moment, Way way) : moment_(moment), way_(way) {}

  void on_train_begin(Learner& learn) override { tick(learn); }
  void on_epoch_begin(Learner& learn) override { tick(learn); }
  void on_batch_begin(Learner& learn) override { tick(learn); }
  void on_step(Learner& learn) override { tick(learn); }
  void on_batch_end(Learner& learn) override { tick(learn); }
  void on_eval_begin(Learner& learn) override { tick(learn); }
  void on_eval_end(Learner& learn) override { tick(learn); }
  void on_epoch_end(Learner& learn) override { tick(learn); }
  void on_train_end(Learner& learn) override { tick(learn); }

  int64_t moments() const { return moments_; }

 private:
  void tick(Learner& learn) {
    if (moments_++ != moment_) return;
    if (way_ == Way::exception) throw std::runtime_error("fault");
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    // When a fit ends, the program's own signal handlers are already restored.
    const bool is_heard = way_ == Way::signal && now.sa_handler != SIG_DFL;
    is_heard ? void(::raise(SIGTERM)) : learn.request_stop();
  }

  int64_t moment_, moments_ = 0;
  Way way_;
};

struct Program {
  std::string name;
  std::function<void(Learner&)> train;
  std::function<void(Learner&)> set_up = [](Learner&) {};
};

torch::nn::Sequential dropout_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 8),
      torch::nn::BatchNorm1d(8),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(8, 2));
}

// Starts the program in its folder; each epoch has 3 training batches and 2
// validation batches.
std::unique_ptr<Learner> start(
    const Program& program,
    const TempFolder& folder,
    const std::shared_ptr<StopAt>& stop) {
  auto learn = std::make_unique<Learner>(
      point_data(24, 16, {.batch_size = 8, .seed = 3, .workers = 0}),
      dropout_net(),
      quiet({.metrics = {accuracy()}, .path = folder.path(), .seed = 11}));
  learn->split({"4"});
  program.set_up(*learn);
  learn->add<SaveCheckpoint>(
      {.folder = "run",
       .every_steps = 1,
       .durable = false,
       .on_signals = true});
  if (stop) learn->add(stop);
  learn->resume("run", {.if_exists = true});
  try {
    program.train(*learn);
  } catch (const std::runtime_error&) {
  }
  return learn;
}

class Stops : public testing::TestWithParam<Program> {};

// Some of the moments; every moment in `./dev fault`.
TEST_P(Stops, AtAnyMomentAndInAnyWayDoNotChangeTheResult) {
  const TempFolder undisturbed;
  const auto watch = std::make_shared<StopAt>(-1, Way::request);
  const auto whole = start(GetParam(), undisturbed, watch);
  ASSERT_EQ(whole->state().result, FitResult::completed);
  const int64_t stride = std::getenv("TERN_KILLS") ? 1 : 11;
  for (const Way way : {Way::request, Way::signal, Way::exception}) {
    for (int64_t moment = static_cast<int64_t>(way) * 3;
         moment < watch->moments();
         moment += stride) {
      SCOPED_TRACE(
          "way " + std::to_string(static_cast<int>(way)) + ", moment " +
          std::to_string(moment) + " of " + std::to_string(watch->moments()));
      const TempFolder folder;
      start(GetParam(), folder, std::make_shared<StopAt>(moment, way));
      const auto resumed = start(GetParam(), folder, nullptr);
      expect_same_end(*resumed, *whole);
      if (testing::Test::HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Stops,
    testing::Values(
        Program{"one_fit", [](Learner& l) { l.fit(3, 1e-2); }},
        Program{
            "two_fits",
            [](Learner& l) {
              l.fit(2, 1e-2);
              l.fit(1, 1e-3);
            }},
        Program{
            "three_schedules",
            [](Learner& l) {
              l.fit_one_cycle(2, 1e-2);
              l.fit(1, 1e-2, {flat_cos()});
              l.fit_one_cycle(1, 1e-3);
            }},
        Program{
            "freeze",
            [](Learner& l) {
              l.freeze().fit(1, 1e-2);
              l.unfreeze().fit(2, {1e-3, 1e-2});
            }},
        Program{
            "freeze_fp16",
            [](Learner& l) {
              l.freeze().fit(1, 1e-2);
              l.unfreeze().fit(2, {1e-3, 1e-2});
            },
            [](Learner& l) { l.to_fp16({.force_fp16 = true}); }},
        Program{"fine_tune", [](Learner& l) { l.fine_tune(2); }},
        Program{
            "lr_find",
            [](Learner& l) {
              l.fit(1, 1e-2);
              l.lr_find({.num_it = 6});
              l.fit(1, 1e-2);
            }},
        Program{
            "extra_callbacks",
            [](Learner& l) {
              const auto accumulate = std::make_shared<GradientAccumulation>(
                  GradientAccumulation::Options{.batches = 2});
              l.fit(2, 1e-2, {accumulate});
              l.fit(1, 1e-2, {std::make_shared<Ema>(0.9)});
            }},
        Program{
            "save_model",
            [](Learner& l) {
              l.fit(2, 1e-2);
              l.load("model");
              l.fit(2, 1e-1);
            },
            [](Learner& l) { l.add<SaveModel>(); }},
        Program{
            "ema_loads",
            [](Learner& l) {
              l.fit(1, 1e-2);
              l.save("first");
              l.fit(1, 1e-1);
              l.load("first");
              l.fit(1, 1e-2);
            },
            [](Learner& l) { l.add<Ema>(0.9); }},
        Program{
            "random_numbers_between",
            [](Learner& l) {
              l.fit(1, 1e-2);
              torch::manual_seed(5);
              l.fit(1, 1e-2);
            },
            [](Learner& l) {
              l.add<LambdaCallback>(
                  {.on_train_begin = [](Learner&) { torch::rand(1); },
                   .on_epoch_begin = [](Learner&) { torch::rand(1); }});
            }},
        Program{
            "swa",
            [](Learner& l) { l.fit(4, 1e-1); },
            [](Learner& l) {
              l.add<Swa>({.start = 0.3, .lr = 1e-2, .anneal_epochs = 3});
            }},
        Program{
            "swa_in_two_fits",
            [](Learner& l) {
              l.fit(2, 1e-1);
              l.fit(2, 1e-2);
            },
            [](Learner& l) {
              l.add<Swa>({.start = 0.3, .lr = 1e-2, .anneal_epochs = 1});
            }}),
    [](const auto& info) { return info.param.name; });

TEST(Stop, EndsLaterFitsAtOnceUntilTheResultIsReset) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  const auto stop = std::make_shared<StopAt>(4, Way::request);
  const TempFolder folder;
  learn.add<SaveCheckpoint>({.folder = folder / "kept", .every_steps = 1});
  learn.fit(2, 1e-2, {stop});
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(sink->lines.back(), "Stopped on request at step 1.");
  const Tensors stopped = parameters_of(learn);
  const auto files = files_of(folder / "kept");
  EXPECT_FALSE(files.empty());
  learn.fit(1).fit_one_cycle(1, 1e-2).fine_tune(1);
  EXPECT_TRUE(
      sink->lines.back().starts_with("Not training, because a stop was "))
      << sink->lines.back();
  EXPECT_EQ(files_of(folder / "kept"), files);
  EXPECT_TRUE(learn.lr_find().losses.empty());
  dry_run(learn);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(learn.state().iteration, 1);
  EXPECT_TRUE(all_equal(parameters_of(learn), stopped));
  expect_error<c10::Error>([&] { learn.plan(); }, {"a stop was requested"});
  expect_error<c10::Error>(
      [&] { learn.save_checkpoint(folder / "run"); },
      {"was interrupted", "on_interrupt"});
  learn.state().result = FitResult::completed;
  learn.fit(1);
  EXPECT_EQ(learn.state().result, FitResult::completed);
  EXPECT_EQ(learn.state().iteration, 9);
}

TEST(Stop, BetweenTwoFitsStopsTheSecond) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1);
  learn.request_stop();
  learn.fit(1);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(learn.state().iteration, 8);
}

TEST(Stop, DuringADryRunStopsTheProgram) {
  Learner learn(point_data(), point_net(), quiet());
  const auto stop = std::make_shared<StopAt>(8, Way::request);
  learn.add(stop).lr_find();
  learn.fit(1);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(learn.state().iteration, 0);
}

// Both log one line, even though the resumed run continues as if nothing had
// happened.
TEST(Stop, AndResumeLogTheirPosition) {
  const TempFolder folder;
  const auto run = [&](Way way, int64_t moment) {
    const auto sink = std::make_shared<MemorySink>();
    Learner learn(
        point_data(),
        point_net(),
        {.path = folder.path(), .sink = sink});
    learn.add<SaveCheckpoint>({.folder = "run", .durable = false});
    learn.add<StopAt>(moment, way);
    learn.resume("run", {.if_exists = true}).fit(1, 1e-2).fit(2, 1e-2);
    std::string all;
    for (const std::string& line : sink->lines) all += line + "\n";
    return all;
  };
  const std::string first = run(Way::request, 80);
  EXPECT_NE(first.find("Stopped on request at step"), std::string::npos)
      << first;
  EXPECT_NE(first.find("SaveCheckpoint: saved "), std::string::npos) << first;
  const std::string second = run(Way::request, -1);
  EXPECT_NE(second.find("Resuming at step "), std::string::npos) << second;
  EXPECT_NE(second.find("/run/step_"), std::string::npos) << second;
  EXPECT_NE(
      second.find("Skipping this fit: it was already complete"),
      std::string::npos);
}

}  // namespace
}  // namespace tern::stops_test
