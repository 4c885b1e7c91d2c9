// Every callback of Tern either can be added to and removed from a running fit,
// or fails with a clear error and changes nothing.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/diagnose/sync_audit.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/logging/activation_stats.h"
#include "tern/callbacks/logging/html_report.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/logging/tensorboard.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/mix.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/multi_optimizer.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/run_control.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/progress_printer.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::come_and_go_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

using Act = std::function<void(Learner&)>;
using Make = std::function<CallbackHandle(const TempFolder&)>;

struct Moment {
  const char* name;
  LambdaCallbackOptions::Function LambdaCallbackOptions::*event;
};

constexpr Moment kMoments[] = {
    {"on_epoch_begin", &LambdaCallbackOptions::on_epoch_begin},
    {"on_batch_begin", &LambdaCallbackOptions::on_batch_begin},
    {"on_loss_begin", &LambdaCallbackOptions::on_loss_begin},
    {"on_step", &LambdaCallbackOptions::on_step},
    {"on_batch_end", &LambdaCallbackOptions::on_batch_end},
    {"on_epoch_end", &LambdaCallbackOptions::on_epoch_end}};

// Acts once, in the second epoch of a fit.
std::shared_ptr<Callback> in_second_epoch(const Moment& moment, Act act) {
  LambdaCallbackOptions options;
  auto is_done = std::make_shared<bool>(false);
  options.*(moment.event) = [act = std::move(act), is_done](Learner& l) {
    if (l.state().epoch != 1 || *is_done) return;
    *is_done = true;
    act(l);
  };
  return std::make_shared<LambdaCallback>(options);
}

Learner make_learner(const TempFolder& folder) {
  return Learner(
      point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0}),
      point_net(),
      quiet({.metrics = {accuracy()}, .path = folder / ".", .seed = 11}));
}

struct BuiltIn {
  const char* name;
  Make make;
};

template <class C, class... A>
Make made(A... arguments) {
  return [=](const TempFolder&) -> CallbackHandle {
    return std::make_shared<C>(arguments...);
  };
}

const std::vector<BuiltIn>& built_ins() {
  static const std::vector<BuiltIn> all = {
      {"GradientAccumulation",
       made<GradientAccumulation>(GradientAccumulation::Options{.batches = 3})},
      {"GradientClip", made<GradientClip>(0.1)},
      {"GradientPenalty", made<GradientPenalty>(0.1)},
      {"LimitBatches", made<LimitBatches>(LimitBatches::Options{.train = 2})},
      {"OverfitBatches", made<OverfitBatches>(2)},
      {"StopAfterNBatches", made<StopAfterNBatches>(2)},
      {"MixUp", made<MixUp>()},
      {"EarlyStopping", made<EarlyStopping>()},
      {"ReduceLROnPlateau", made<ReduceLROnPlateau>()},
      {"RunControl", made<RunControl>()},
      {"TerminateOnNaN", made<TerminateOnNaN>()},
      {"Ema", made<Ema>(0.9)},
      {"Swa", made<Swa>(Swa::Options{.start = 0})},
      {"Profiler", made<Profiler>(Profiler::Options{.show = false})},
      {"PeakMemory", made<PeakMemory>()},
      {"SyncAudit", made<SyncAudit>()},
      {"ActivationStats", made<ActivationStats>()},
      {"HtmlReport", made<HtmlReport>()},
      {"CSVLogger", made<CSVLogger>()},
      {"JsonLinesLogger", made<JsonLinesLogger>()},
      {"TensorBoard", made<TensorBoard>()},
      {"TrainMetrics", made<TrainMetrics>()},
      {"bf16", made<MixedPrecision>(torch::kBFloat16)},
      {"fp16", made<MixedPrecision>(torch::kHalf)},
      {"amp",
       [](const TempFolder&) -> CallbackHandle {
         return std::make_shared<MixedPrecision>(
             torch::kCPU,
             AmpOptions{.dtype = torch::kHalf});
       }},
      {"SaveCheckpoint",
       made<SaveCheckpoint>(
           SaveCheckpoint::Options{.folder = "run", .durable = false})},
      {"SaveModel", made<SaveModel>(SaveModel::Options{})},
      {"ParamScheduler", [](const TempFolder&) { return flat_cos(); }},
      {"TorchScheduler",
       [](const TempFolder&) -> CallbackHandle {
         return std::make_shared<TorchScheduler>(
             [](torch::optim::Optimizer& optimizer) {
               return std::make_unique<torch::optim::StepLR>(optimizer, 1, 0.5);
             });
       }},
      {"ProgressPrinter", made<ProgressPrinter>()}};
  return all;
}

class ComeAndGo : public testing::TestWithParam<BuiltIn> {};

// Runs `act`; an error must leave the list of callbacks unchanged.
Act or_refuse(Act act, std::string* refusal) {
  return [act = std::move(act), refusal](Learner& l) {
    const size_t before = l.callbacks().size();
    try {
      act(l);
    } catch (const c10::Error& error) {
      *refusal = error.what_without_backtrace();
      EXPECT_EQ(l.callbacks().size(), before)
          << "rejected, but the list of callbacks changed";
    }
  };
}

void expect_usable(Learner& learn) {
  const int64_t before = learn.state().iteration;
  EXPECT_FALSE(learn.state().is_fitting);
  EXPECT_EQ(learn.data().train->size(), 6) << "the loader was not restored";
  EXPECT_EQ(learn.state().scaler, nullptr);
  learn.state().result = FitResult::completed;
  learn.fit(1, 1e-2);
  EXPECT_GT(learn.state().iteration, before);
  for (const torch::Tensor& p : parameters_of(learn)) {
    EXPECT_TRUE(p.isfinite().all().item<bool>());
  }
}

TEST_P(ComeAndGo, CanBeAddedToARunningFitOrIsRejected) {
  for (const Moment& moment : kMoments) {
    SCOPED_TRACE(moment.name);
    const TempFolder folder;
    Learner learn = make_learner(folder);
    const CallbackHandle callback = GetParam().make(folder);
    std::string refusal;
    learn.add(in_second_epoch(
        moment,
        or_refuse([&](Learner& l) { l.add(callback); }, &refusal)));
    learn.fit(3, 1e-2);
    if (!refusal.empty()) EXPECT_EQ(refusal[0], '[') << refusal;
    expect_usable(learn);
  }
}

TEST_P(ComeAndGo, CanBeRemovedFromARunningFitWithoutATraceOrIsRejected) {
  for (const Moment& moment : kMoments) {
    SCOPED_TRACE(moment.name);
    const TempFolder folder;
    Learner learn = make_learner(folder);
    const size_t at_first = learn.callbacks().size();
    const CallbackHandle callback = GetParam().make(folder);
    std::string refusal;
    // Added before the callback, which may end the fit.
    const auto remover = in_second_epoch(
        moment,
        or_refuse([&](Learner& l) { l.remove(*callback); }, &refusal));
    learn.add(remover);
    learn.add(callback);
    learn.fit(3, 1e-2);
    if (!refusal.empty()) {
      EXPECT_EQ(refusal[0], '[') << refusal;
      learn.remove(*callback);
    }
    learn.remove(*remover);
    const bool has_ended_fit =
        std::string(GetParam().name) == "StopAfterNBatches";
    if (!has_ended_fit) EXPECT_EQ(learn.callbacks().size(), at_first);
    expect_usable(learn);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    ComeAndGo,
    testing::ValuesIn(built_ins()),
    [](const auto& info) { return std::string(info.param.name); });

// ---- What a late callback does ----

// Runs three epochs of six batches and adds the callback before the second.
Learner fit_with_late(
    const TempFolder& folder,
    const CallbackHandle& callback) {
  Learner learn = make_learner(folder);
  learn.add(in_second_epoch(kMoments[0], [callback](Learner& l) {
    l.add(callback);
  }));
  learn.fit(3, 1e-2);
  return learn;
}

TEST(LateCallback, GetsOnTrainBeginAndOnEpochBeginOnce) {
  for (const Moment& moment : kMoments) {
    SCOPED_TRACE(moment.name);
    std::vector<std::string> events;
    const auto callback =
        std::make_shared<LambdaCallback>(LambdaCallbackOptions{
            .on_train_begin =
                [&](Learner&) { events.emplace_back("train_begin"); },
            .on_epoch_begin =
                [&](Learner& l) {
                  events.push_back(
                      "epoch_begin " + std::to_string(l.state().epoch));
                },
            .on_train_end =
                [&](Learner&) { events.emplace_back("train_end"); }});
    const TempFolder folder;
    Learner learn = make_learner(folder);
    learn.add(in_second_epoch(moment, [&](Learner& l) { l.add(callback); }));
    learn.fit(3, 1e-2);
    std::vector<std::string> expected = {
        "train_begin",
        "epoch_begin 1",
        "epoch_begin 2",
        "train_end"};
    if (std::string(moment.name) == "on_epoch_end") {
      expected.erase(expected.begin() + 1);
    }
    EXPECT_EQ(events, expected);
  }
}

TEST(LateCallback, EmaAverages) {
  const TempFolder folder;
  const auto ema = std::make_shared<Ema>(0.9);
  fit_with_late(folder, ema);
  EXPECT_EQ(ema->state_dict()["steps"].item<int64_t>(), 12);
}

TEST(LateCallback, SwaWritesTheMeanIntoTheModel) {
  const TempFolder folder;
  const auto swa = std::make_shared<Swa>(Swa::Options{.start = 0});
  fit_with_late(folder, swa);
  EXPECT_TRUE(swa->has_put_mean_in());
}

TEST(LateCallback, GradientAccumulationBeginsWithTheNextStep) {
  for (const Moment& moment : {kMoments[0], kMoments[4]}) {
    const TempFolder folder;
    Learner learn = make_learner(folder);
    int64_t steps = 0;
    learn.add<LambdaCallback>({.on_step_end = [&](Learner&) { ++steps; }});
    learn.add(in_second_epoch(moment, [](Learner& l) {
      l.add<GradientAccumulation>({.batches = 3});
    }));
    learn.fit(3, 1e-2);
    // The second epoch is 3 + 3 batches, or 1 + 3 + 2.
    const int64_t of_second = moment.name == kMoments[0].name ? 2 : 3;
    EXPECT_EQ(steps, 6 + of_second + 2) << moment.name;
  }
}

TEST(LateCallback, AScheduleStartsAtThePositionOfTheFit) {
  const TempFolder folder;
  Learner learn = fit_with_late(folder, flat_cos());
  Learner whole = make_learner(folder);
  whole.fit(3, 1e-2, {flat_cos()});
  const auto& rates = learn.recorder().learning_rates();
  const auto& expected = whole.recorder().learning_rates();
  ASSERT_EQ(rates.size(), 18U);
  EXPECT_LT(rates[17], 2e-3);
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(rates[i], expected[i]) << i;
}

TEST(LateCallback, SaveCheckpointWritesIntoTheLearnersPath) {
  const TempFolder folder;
  fit_with_late(
      folder,
      std::make_shared<SaveCheckpoint>(
          SaveCheckpoint::Options{.folder = "run", .durable = false}));
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "step_18"));
}

TEST(LateCallback, EarlyStoppingEndsTheFit) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  learn.add(in_second_epoch(kMoments[0], [](Learner& l) {
    l.add<EarlyStopping>({.min_delta = 10});
  }));
  learn.fit(8, 1e-2);
  EXPECT_EQ(learn.recorder().epochs().size(), 3U);
}

TEST(LateCallback, IsNotAddedIfItsOnTrainBeginThrows) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  const size_t before = learn.callbacks().size() + 1;
  learn.add(in_second_epoch(kMoments[0], [&](Learner& l) {
    EXPECT_THROW(
        l.add<LambdaCallback>(
            {.on_train_begin =
                 [](Learner&) { throw std::runtime_error("no"); }}),
        std::runtime_error);
    EXPECT_EQ(l.callbacks().size(), before);
  }));
  learn.fit(2, 1e-2);
}

// Returns a Learner that clips from its second epoch on.
Learner with_late_clip(const TempFolder& folder) {
  Learner learn = make_learner(folder);
  learn.add<SaveCheckpoint>(
      {.folder = "run", .every_steps = 1, .keep = 0, .durable = false});
  learn.add(in_second_epoch(kMoments[0], [](Learner& l) {
    if (!l.find<GradientClip>()) l.add<GradientClip>(1e-3);
  }));
  return learn;
}

TEST(LateCallback, IsRequiredWhenTheFitIsResumed) {
  const TempFolder folder;
  Learner whole = with_late_clip(folder);
  whole.fit(3, 1e-2);
  // Resumed in the epoch that adds it, the callback is added again.
  Learner in_its_epoch = with_late_clip(folder);
  in_its_epoch.resume("run/step_8").fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(in_its_epoch), parameters_of(whole)));
  Learner later = with_late_clip(folder);
  later.resume("run/step_14");
  expect_error<CheckpointError>(
      [&] { later.fit(3, 1e-2); },
      {"GradientClip 0 is missing", "added during a fit"});
}

TEST(LateCallback, IsRequiredWhenALaterFitIsResumed) {
  const TempFolder folder;
  Learner whole = with_late_clip(folder);
  whole.fit(2, 1e-2);
  // A callback that a dry run removes is still marked as added during a fit
  // when the end of the dry run restores it.
  const auto takes = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_begin = [](Learner& l) {
        const auto clip = l.find<GradientClip>();
        if (l.state().is_dry_run && clip) l.remove(*clip);
      }});
  whole.add(takes).lr_find({.num_it = 6});
  whole.remove(*takes);
  whole.save_checkpoint("between");
  whole.fit(2, 1e-2);
  for (const char* const checkpoint : {"run/step_14", "between"}) {
    Learner without = with_late_clip(folder);
    without.resume(checkpoint);
    expect_error<CheckpointError>(
        [&] { without.fit(2, 1e-2).fit(2, 1e-2); },
        {"GradientClip 0 is missing", "added during a fit"});
    Learner with = with_late_clip(folder);
    with.add<GradientClip>(1e-3).resume(checkpoint);
    with.fit(2, 1e-2).fit(2, 1e-2);
    EXPECT_TRUE(all_equal(parameters_of(with), parameters_of(whole)));
  }
}

// ---- What a removed callback leaves behind ----

TEST(RemovedCallback, GetsOnTrainEndOnceWithTheReason) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  std::vector<bool> was_removal;
  const auto callback = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_train_end = [&](Learner& l) {
        was_removal.push_back(l.state().is_removal);
      }});
  learn.add(callback);
  learn.add(in_second_epoch(kMoments[4], [&](Learner& l) {
    l.remove(*callback);
    EXPECT_FALSE(l.state().is_removal);
  }));
  learn.fit(3, 1e-2);
  EXPECT_EQ(was_removal, std::vector<bool>{true});
}

TEST(RemovedCallback, EmaLeavesTheTrainingWeights) {
  const TempFolder folder;
  Learner learn = make_learner(folder), plain = make_learner(folder);
  const auto ema = std::make_shared<Ema>(0.9);
  learn.add(ema);
  learn.add(in_second_epoch(kMoments[0], [&](Learner& l) { l.remove(*ema); }));
  learn.fit(3, 1e-2);
  plain.fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(learn), parameters_of(plain)));
}

TEST(RemovedCallback, MixedPrecisionLeavesNoLossScale) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  learn.to_fp16({.force_fp16 = true}).add<GradientPenalty>(0.1);
  learn.add(in_second_epoch(kMoments[5], [](Learner& l) {
    l.remove(*l.find<MixedPrecision>());
    EXPECT_EQ(l.state().scaler, nullptr);
  }));
  learn.fit(3, 1e-2);
  EXPECT_EQ(parameters_of(learn)[0].scalar_type(), torch::kFloat);
}

TEST(RemovedCallback, MultiOptimizerCannotBeRemovedAndStays) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  const auto loss = [module = learn.model().module()](const Batch& b) {
    return module->as<torch::nn::Sequential>()
        ->forward(b.inputs[0])
        .square()
        .mean();
  };
  const auto multi = std::make_shared<MultiOptimizer>(MultiOptimizer::Options{
      .parts = {
          {.name = "0", .loss = loss},
          {.name = "1", .loss = loss},
          {.name = "3", .loss = loss}}});
  learn.add(multi);
  learn.add(in_second_epoch(kMoments[5], [&](Learner& l) {
    expect_error<c10::Error>([&] { l.remove(*multi); }, {"MultiOptimizer"});
    EXPECT_EQ(l.find<MultiOptimizer>(), multi);
  }));
  learn.fit(2, 1e-2);
  learn.fit(1, 1e-2);
}

TEST(RemovedCallback, IsRestoredAfterADryRun) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  learn.split({"3"}).freeze();
  learn.add<GradientClip>(0.1);
  learn.add(in_second_epoch(kMoments[0], [](Learner& l) {
    l.remove(*l.find<GradientClip>());
    l.add<Ema>(0.9);
    l.unfreeze();
  }));
  const auto before = learn.callbacks();
  learn.lr_find({.num_it = 20});
  EXPECT_EQ(learn.callbacks(), before);
  EXPECT_FALSE(learn.model().parameters()[0].tensor.requires_grad());
}

struct Remembers final : Callback {
  int64_t batches = 0;
  void on_batch_end(Learner& l) override { batches += l.state().training; }
  StateDict state_dict() const override {
    if (batches == 0) return {};
    return {{"batches", torch::scalar_tensor(batches, torch::kLong)}};
  }
  void load_state_dict(const StateDict& state) override {
    batches = state.is_empty() ? 0 : state["batches"].item<int64_t>();
  }
};

TEST(DryRun, RestoresACallbackWhoseStateWasEmpty) {
  const TempFolder folder;
  Learner learn = make_learner(folder);
  const auto callback = std::make_shared<Remembers>();
  learn.add(callback);
  learn.lr_find({.num_it = 10});
  EXPECT_EQ(callback->batches, 0);
}

}  // namespace
}  // namespace tern::come_and_go_test
