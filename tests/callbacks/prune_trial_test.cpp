#include "tern/callbacks/prune_trial.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::prune_trial_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner(LearnerOptions options = {}) {
  return std::make_unique<Learner>(
      point_data(64, 32),
      point_net(),
      quiet(std::move(options)));
}

// Runs a trial whose epochs have these validation losses and returns its
// result.
FitResult run_trial(
    const std::shared_ptr<Study>& study,
    const std::vector<double>& losses,
    PruneTrial::Options options = {}) {
  options.study = study;
  const auto learn = learner();
  learn->add(scripted_valid_loss(losses))
      .add<PruneTrial>(options)
      .fit(std::ssize(losses));
  return learn->state().result;
}

std::shared_ptr<Study> study_of(
    const std::vector<std::vector<double>>& trials) {
  auto study = std::make_shared<Study>();
  for (const auto& losses : trials) {
    run_trial(study, losses, {.startup_trials = 1000});
  }
  return study;
}

TEST(PruneTrial, StopsATrialThatIsWorseThanTheMedianAtTheSameEpoch) {
  const auto study = study_of({{4, 3, 2}, {5, 2, 1}, {6, 5, 4}});
  // The medians are 5, 3, 2. The best value so far is compared.
  EXPECT_EQ(
      run_trial(study, {4.9, 3.1, 1}, {.name = "late", .startup_trials = 3}),
      FitResult::pruned);
  EXPECT_EQ(study->trials()[3].name, "late");
  EXPECT_EQ(study->trials()[3].values, (std::vector<double>{4.9, 3.1}));
  EXPECT_EQ(study->trials()[3].result, FitResult::pruned);
  EXPECT_EQ(
      run_trial(study, {5.1, 1, 1}, {.startup_trials = 3}),
      FitResult::pruned);
  EXPECT_EQ(
      run_trial(study, {5, 3, 9}, {.startup_trials = 3}),
      FitResult::completed);  // ties pass, and the last epoch is never pruned
}

TEST(PruneTrial, ComparesWithCompleteTrialsOnceThereAreEnough) {
  const auto study = study_of({{1, 1}, {1, 1}});
  EXPECT_EQ(
      run_trial(study, {2, 2}, {.startup_trials = 3}),
      FitResult::completed);
  EXPECT_EQ(run_trial(study, {3, 3}, {.startup_trials = 3}), FitResult::pruned);
  // The pruned trial does not count: the median of 1, 1, 2 is 1.
  EXPECT_EQ(
      run_trial(study, {1, 1}, {.startup_trials = 3}),
      FitResult::completed);
  EXPECT_EQ(
      run_trial(study, {3, 1, 1}, {.startup_trials = 0, .warmup_epochs = 1}),
      FitResult::completed);
  // Only the last trial had a third epoch, which was not compared with
  // anything.
  EXPECT_EQ(study->trials().size(), 6u);
}

TEST(PruneTrial, PrunesTrialsWithOnlyNaNAndIgnoresNaNInTheMedian) {
  const auto study = study_of({{NAN, 3}, {2, 2}, {3, 3}});
  EXPECT_EQ(
      run_trial(study, {NAN, 1}, {.startup_trials = 0}),
      FitResult::pruned);
  EXPECT_EQ(
      run_trial(study, {2.4, 1}, {.startup_trials = 0}),
      FitResult::completed);
  EXPECT_EQ(
      run_trial(study, {2.6, 1}, {.startup_trials = 0}),
      FitResult::pruned);
}

TEST(PruneTrial, FollowsTheDirectionOfAMetric) {
  const auto study = std::make_shared<Study>();
  for (const bool is_good : {true, false}) {
    const auto learn = learner({.metrics = {accuracy()}});
    learn
        ->add<LambdaCallback>(
            {.on_epoch_end =
                 [is_good](Learner& l) {
                   l.state().last_metrics = {{"accuracy", is_good ? 0.9 : 0.5}};
                 },
             .order = callback_order::kRecorder - 1})
        .add<PruneTrial>(
            {.study = study, .monitor = "accuracy", .startup_trials = 1})
        .fit(2);
    EXPECT_EQ(
        learn->state().result,
        is_good ? FitResult::completed : FitResult::pruned);
  }
  ASSERT_TRUE(study->best());
  EXPECT_EQ(study->best()->name, "0");
}

TEST(Study, ReturnsItsBestCompleteTrial) {
  EXPECT_EQ(Study().best(), nullptr);
  const auto study = study_of({{4, 3}, {5, 2}, {NAN, NAN}});
  run_trial(study, {6, 0}, {.startup_trials = 0});  // pruned before its best
  EXPECT_EQ(study->best(), &study->trials()[1]);
  const std::string table = study->to_string();
  for (const char* text : {"best valid_loss", "2.000000", "pruned", "nan"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << " in " << table;
  }
}

TEST(PruneTrial, PrintsTheReasonInOneLine) {
  const auto study = study_of({{1, 1}});
  const auto sink = std::make_shared<MemorySink>();
  const auto learn = learner({.sink = sink});
  learn->add(scripted_valid_loss({2, 2}))
      .add<PruneTrial>({.study = study, .startup_trials = 1})
      .fit(2);
  EXPECT_NE(
      std::ranges::find(
          sink->lines,
          "PruneTrial: valid_loss was at best 2.000000 after 1 epoch, worse "
          "than the median 1.000000 of 1 earlier trial; the trial stops."),
      sink->lines.end());
}

TEST(PruneTrial, SpansAllFitsOfATrialAndStopsFineTune) {
  const auto study = study_of({{3, 2, 1}, {3, 2, 1}});
  const auto learn = learner();
  learn->split({"3"});
  learn->add(scripted_valid_loss({1, 9, 9}))
      .add<PruneTrial>({.study = study, .startup_trials = 1})
      .fit(1)
      .fit(2);
  EXPECT_EQ(study->trials()[2].values, (std::vector<double>{1, 9, 9}));
  EXPECT_EQ(study->trials()[2].result, FitResult::completed);
  const auto worse = learner();
  worse->split({"3"});
  worse->add(scripted_valid_loss({9, 9, 9}))
      .add<PruneTrial>({.study = study, .startup_trials = 1})
      .fine_tune(2, {.freeze_epochs = 2});
  EXPECT_EQ(worse->state().result, FitResult::pruned);
  EXPECT_EQ(worse->recorder().epochs().size(), 1u);
  // Whether to fit again is up to the program.
  worse->remove(*worse->find<PruneTrial>());
  worse->fit(1);
  EXPECT_EQ(worse->state().result, FitResult::completed);
}

TEST(PruneTrial, KeepsTheBestModelOfAPrunedTrial) {
  const TempFolder temp;
  const auto study = study_of({{4, 2, 1}});
  const auto learn = learner({.path = temp.path()});
  learn->add(scripted_valid_loss({3, 4, 4}))
      .add<SaveModel>()
      .add<PruneTrial>({.study = study, .startup_trials = 1})
      .fit(3);
  EXPECT_EQ(learn->state().result, FitResult::pruned);
  EXPECT_TRUE(learn->find<SaveModel>()->has_loaded());
}

TEST(PruneTrial, RecordsAFailedTrial) {
  const auto study = std::make_shared<Study>();
  const auto learn = learner();
  learn
      ->add<LambdaCallback>(
          {.on_epoch_begin =
               [](Learner& l) {
                 if (l.state().epoch == 1) throw std::runtime_error("no power");
               }})
      .add<PruneTrial>({.study = study});
  EXPECT_THROW(learn->fit(3), std::runtime_error);
  EXPECT_EQ(study->trials()[0].result, FitResult::failed);
  EXPECT_EQ(study->trials()[0].values.size(), 1u);
  EXPECT_EQ(study->best(), nullptr);
}

TEST(PruneTrial, IgnoresDryRuns) {
  const auto study = std::make_shared<Study>();
  const auto learn = learner();
  learn->add<PruneTrial>({.study = study});
  learn->lr_find({.num_it = 6});
  EXPECT_TRUE(study->trials().empty());
  learn->fit(1);
  learn->lr_find({.num_it = 6});
  ASSERT_EQ(study->trials().size(), 1u);
  EXPECT_EQ(study->trials()[0].values.size(), 1u);
}

// A program that runs two trials, the second of which is pruned, and that may
// be restarted at any time.
struct Search {
  explicit Search(const TempFolder& folder, int64_t stops_at = -1) {
    const std::vector<std::vector<double>> losses = {{3, 2, 1}, {2.5, 4, 4}};
    for (size_t trial = 0; trial < losses.size(); ++trial) {
      const auto learn = learner({.path = folder.path()});
      const std::string run = "run_" + std::to_string(trial);
      // Indexed by epoch, because the trial is resumed in the middle.
      learn->add<LambdaCallback>(
          {.on_epoch_end =
               [&losses, trial](Learner& l) {
                 l.state().valid_loss = losses[trial][l.state().epoch];
               },
           .order = callback_order::kRecorder - 1});
      learn->add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
        if (l.state().training && steps++ == stops_at) l.request_stop();
      }});
      learn->add<PruneTrial>({.study = study, .startup_trials = 1});
      learn->add<SaveCheckpoint>(
          {.folder = folder / run, .every_steps = 1, .durable = false});
      learn->resume(folder / run, {.if_exists = true}).fit(3);
      results.push_back(learn->state().result);
      if (results.back() == FitResult::interrupted) return;
    }
  }

  int64_t steps = 0;
  std::shared_ptr<Study> study = std::make_shared<Study>();
  std::vector<FitResult> results;
};

TEST(PruneTrial, ResumesASearchStoppedAnywhere) {
  const TempFolder whole_folder;
  const Search whole(whole_folder);
  EXPECT_EQ(
      whole.results,
      (std::vector<FitResult>{FitResult::completed, FitResult::pruned}));
  EXPECT_EQ(whole.steps, 10);
  // Stops at the beginning, in the middle and at the end of epochs of both
  // trials.
  for (const int64_t stop : {0, 2, 5, 7, 9}) {
    const TempFolder folder;
    const Search stopped(folder, stop);
    for (int again = 0; again < 2; ++again) {  // all done the second time
      const Search resumed(folder);
      EXPECT_EQ(resumed.results, whole.results) << stop;
      ASSERT_EQ(resumed.study->trials().size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        const auto& trial = resumed.study->trials()[i];
        EXPECT_EQ(trial.values, whole.study->trials()[i].values) << stop;
        EXPECT_EQ(trial.result, whole.study->trials()[i].result) << stop;
      }
    }
  }
}

TEST(PruneTrial, KeepsItsResultInACheckpointBetweenFits) {
  const TempFolder temp;
  for (const bool resumes : {false, true}) {
    const auto study = study_of({{1, 1}});
    const auto learn = learner({.path = temp.path()});
    learn->add(scripted_valid_loss({2, 2}))
        .add<PruneTrial>({.study = study, .startup_trials = 1});
    if (resumes) learn->resume(temp / "run");
    learn->fit(2);
    EXPECT_EQ(learn->state().result, FitResult::pruned);
    EXPECT_EQ(study->trials()[1].result, FitResult::pruned);
    EXPECT_EQ(study->trials()[1].values, std::vector<double>{2});
    if (!resumes) learn->save_checkpoint(temp / "run");
  }
}

TEST(PruneTrial, RecordsATrialStoppedByTerminateOnNaNAsFailed) {
  const auto study = std::make_shared<Study>();
  for (const bool diverges : {true, false}) {
    const auto learn = learner();
    if (diverges) {
      learn->add<LambdaCallback>({.on_backward_begin = [](Learner& l) {
        if (l.state().epoch == 1) l.state().loss = l.state().loss * NAN;
      }});
    }
    learn->add<TerminateOnNaN>()
        .add(scripted_valid_loss(
            diverges ? std::vector<double>{0.1, 0.1, 0.1}
                     : std::vector<double>{3, 2, 1}))
        .add<PruneTrial>({.study = study})
        .fit(3);
  }
  EXPECT_EQ(study->trials()[0].result, FitResult::failed);
  EXPECT_EQ(study->trials()[0].values, std::vector<double>{0.1});
  EXPECT_EQ(study->best(), &study->trials()[1]);
}

TEST(PruneTrial, DoesNotCountADivergedTrialAsCompleteAfterAResume) {
  const TempFolder temp;
  const auto start = [&](const std::shared_ptr<Study>& study) {
    auto learn = learner();
    learn
        ->add<LambdaCallback>(
            {.on_backward_begin =
                 [](Learner& l) {
                   if (l.state().epoch == 1) {
                     l.state().loss = l.state().loss * NAN;
                   }
                 }})
        .add<TerminateOnNaN>()
        .add(scripted_valid_loss({0.1, 0.1, 0.1}))
        .add<PruneTrial>({.study = study})
        .add<SaveCheckpoint>({.folder = temp / "run", .durable = false});
    learn->resume(temp / "run", {.if_exists = true});
    learn->fit(3);
  };
  start(std::make_shared<Study>());
  const auto again = std::make_shared<Study>();
  start(again);
  ASSERT_EQ(again->trials().size(), 1u);
  EXPECT_NE(again->trials()[0].result, FitResult::completed);
  EXPECT_EQ(again->best(), nullptr);
}

TEST(PruneTrial, RejectsInvalidOptions) {
  const auto study = study_of({{1}});
  expect_error<c10::ValueError>(
      [] { PruneTrial({.monitor = "valid_loss"}); },
      {"no study", "std::make_shared<tern::Study>()"});
  expect_error<c10::ValueError>(
      [&] { PruneTrial({.study = study, .startup_trials = -1}); },
      {"startup_trials", "-1"});
  expect_error<c10::ValueError>(
      [&] { PruneTrial({.study = study, .mode = "lowest"}); },
      {"lowest", "\"min\""});
  expect_error<c10::ValueError>(
      [&] {
        learner()
            ->add<PruneTrial>({.study = study, .monitor = "train_loss"})
            .fit(1);
      },
      {"train_loss", "\"valid_loss\"", "expected the same"});
  expect_error<c10::ValueError>(
      [&] {
        learner()
            ->add<PruneTrial>({.study = study})
            .add<PruneTrial>({.study = study});
      },
      {"PruneTrial", "trial of this Learner"});
  expect_error<c10::ValueError>(
      [&] {
        const auto prune =
            std::make_shared<PruneTrial>(PruneTrial::Options{.study = study});
        const auto first = learner(), second = learner();
        first->add(prune).fit(1);
        second->add(prune).fit(1);
      },
      {"another Learner", "per trial"});
}

}  // namespace
}  // namespace tern::prune_trial_test
