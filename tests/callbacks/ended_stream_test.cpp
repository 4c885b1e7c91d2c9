// Fits on a stream that cannot restart and ends before the fit does.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/prune_trial.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/data/stream_dataset.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/one_pass_stream.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::ended_stream_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

constexpr int64_t kBatch = 8;
constexpr int64_t kEpoch = 24;  // samples, three batches

DataBunch data_of(std::shared_ptr<Dataset> train) {
  DataBunch data = point_data(8, 16);
  data.train = std::make_shared<DataLoader>(
      std::move(train),
      DataLoaderOptions{
          .batch_size = kBatch,
          .drop_last = false,
          .training = true,
          .workers = 0});
  return data;
}

DataBunch stream_of(int64_t length, int64_t epoch = kEpoch) {
  return data_of(std::make_shared<StreamEpochs>(
      std::make_shared<OnePassStream>(points(length), length),
      epoch));
}

std::unique_ptr<Learner> learner_on(int64_t length) {
  return std::make_unique<Learner>(stream_of(length), plain_net(), quiet());
}

std::shared_ptr<Callback> step_counter(int64_t& steps) {
  return std::make_shared<LambdaCallback>(
      LambdaCallback::Options{.on_step_end = [&](Learner&) { ++steps; }});
}

// The stream ends after three batches. With windows of two, the third batch is
// a window alone; with windows of four, all three are one window.
TEST(EndedStream, MakesTheStepOfAWindowThatEndsExactlyWithABatch) {
  const auto train = [](DataBunch data, int64_t batches, bool is_half) {
    int64_t steps = 0;
    Learner learn(std::move(data), plain_net(), quiet());
    if (is_half) learn.to_fp16({.loss_scale = 1024, .force_fp16 = true});
    learn
        .add<GradientAccumulation>(
            GradientAccumulation::Options{.batches = batches})
        .add<GradientClip>(GradientClip::Options{.max_norm = 0.05})
        .add<Ema>(Ema::Options{.decay = 0.5, .warm_up = false})
        .add(step_counter(steps))
        .fit(1, 1e-2);
    EXPECT_EQ(steps, batches == 2 ? 2 : 1);
    return bytes_of(learn);
  };
  constexpr int64_t kSamples = 3 * kBatch;
  for (const int64_t batches : {2, 4}) {
    for (const bool is_half : {false, true}) {
      const auto whole = train(data_of(points(kSamples)), batches, is_half);
      EXPECT_EQ(
          train(stream_of(kSamples, 2 * kSamples), batches, is_half),
          whole)
          << batches << " batches" << (is_half ? ", fp16" : "");
    }
  }
}

// A step that follows its batch is a step like any other.
TEST(EndedStream, LetsCallbacksEvaluateAndLogInThatStep) {
  const auto learn = learner_on(16);
  learn->add<GradientAccumulation>(GradientAccumulation::Options{.batches = 4})
      .add<LambdaCallback>(LambdaCallback::Options{
          .on_step =
              [](Learner& l) {
                l.validate();
                EXPECT_TRUE(l.state().training);
                EXPECT_EQ(l.state().batch, 1);
                l.log("gradients", static_cast<double>(l.gradients().size()));
              }})
      .fit(1, 1e-2);
  ASSERT_EQ(learn->recorder().logged().size(), 1u);
  EXPECT_EQ(learn->recorder().logged()[0].name, "gradients");
  EXPECT_EQ(learn->recorder().logged()[0].batches, (std::vector<int64_t>{1}));
}

TEST(EndedStream, MakesNoStepIfACallbackHasDiscardedTheGradients) {
  int64_t steps = 0;
  const auto learn = learner_on(16);
  learn->to_fp16({.loss_scale = 1024, .force_fp16 = true});
  learn->add<GradientAccumulation>(GradientAccumulation::Options{.batches = 4})
      .add<LambdaCallback>(LambdaCallback::Options{
          .on_backward_end =
              [](Learner& l) { l.state().skip_zero_grad = false; }})
      .add(step_counter(steps))
      .fit(1, 1e-2);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(learn->state().result, FitResult::completed);
}

TEST(EndedStream, MakesTheStepAfterAStopRequestInTheWindow) {
  int64_t steps = 0;
  const auto learn = learner_on(16);
  learn->add<GradientAccumulation>(GradientAccumulation::Options{.batches = 4})
      .add<LambdaCallback>(LambdaCallback::Options{
          .on_batch_end = [](Learner& l) { l.request_stop(); }})
      .add(step_counter(steps))
      .fit(1, 1e-2);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(learn->state().result, FitResult::interrupted);
}

TEST(EndedStream, EndsAResumedFitWhereItEndedBefore) {
  // The second epoch ends after a batch and a half.
  for (const char* const checkpoint : {"step_5", "step_3"}) {
    const TempFolder folder;
    const auto saving = std::make_shared<SaveCheckpoint>(
        SaveCheckpoint::Options{.folder = folder / "run", .keep = 0});
    const auto first = learner_on(36);
    first->add(saving).fit(5, 1e-2);
    ASSERT_EQ(first->state().iteration, 5);
    ASSERT_EQ(first->recorder().epochs().size(), 2u);
    // A longer stream, which has samples for all epochs.
    const auto second = learner_on(200);
    second->resume(folder / "run" / checkpoint).fit(5, 1e-2);
    EXPECT_EQ(second->state().result, FitResult::completed);
    const bool had_ended = std::string(checkpoint) == "step_5";
    EXPECT_EQ(second->state().iteration, had_ended ? 5 : 15) << checkpoint;
    EXPECT_EQ(second->recorder().epochs().size(), had_ended ? 2u : 5u);
  }
}

TEST(EndedStream, LeavesACheckpointOfItsEnd) {
  // In the middle of an epoch, and exactly with one.
  for (const int64_t length : {36, 24}) {
    const TempFolder folder;
    const auto learn = learner_on(length);
    learn
        ->add<SaveCheckpoint>(SaveCheckpoint::Options{
            .folder = folder / "run",
            .every_epochs = 10})
        .fit(5, 1e-2);
    const auto last = "step_" + std::to_string(learn->state().iteration);
    EXPECT_TRUE(std::filesystem::exists(folder / "run" / last)) << last;
  }
}

TEST(EndedStream, CompletesATrialInsteadOfPruningIt) {
  const auto study = std::make_shared<Study>();
  const auto run = [&](int64_t length, std::vector<double> losses) {
    const auto learn = learner_on(length);
    learn->add(scripted_valid_loss(std::move(losses)))
        .add<PruneTrial>(
            PruneTrial::Options{.study = study, .startup_trials = 1})
        .fit(3, 1e-2);
    return learn->state().result;
  };
  ASSERT_EQ(run(100, {1, 1, 1}), FitResult::completed);
  ASSERT_EQ(run(100, {1, 9, 9}), FitResult::completed);  // the best counts
  ASSERT_EQ(run(100, {9, 9, 9}), FitResult::pruned);
  EXPECT_EQ(run(20, {9}), FitResult::completed);
  EXPECT_EQ(study->trials().back().result, FitResult::completed);
}

TEST(EndedStream, KeepsTheResultsOfTheFitBeforeOneThatHasNoData) {
  const auto learn = learner_on(36);
  learn->fit(5, 1e-2);
  const double loss = learn->state().valid_loss;
  ASSERT_GT(loss, 0);
  expect_error<c10::ValueError>(
      [&] { learn->fit(1, 1e-2); },
      {"ended before the first batch"});
  EXPECT_EQ(learn->state().valid_loss, loss);
}

TEST(EndedStream, HasNoSwaOfAModelWithBatchNorm) {
  Learner with_norm(stream_of(36), point_net(), quiet());
  with_norm.add<Swa>();
  expect_error<c10::ValueError>(
      [&] { with_norm.fit(2, 1e-2); },
      {"[Swa]", "BatchNorm", "cannot restart", "Ema"});
  expect_error<c10::ValueError>(
      [&] { update_batch_norm(with_norm); },
      {"[update_batch_norm]", "cannot restart"});
}

TEST(EndedStream, CannotBeReadAgainByOverfitBatches) {
  const auto learn = learner_on(36);
  learn->add<OverfitBatches>(1);
  expect_error<c10::ValueError>(
      [&] { learn->fit(2, 1e-2); },
      {"[OverfitBatches]", "cannot restart"});
}

TEST(EndedStream, WarnsIfItEndsBeforeSwaHasAveraged) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(stream_of(36), plain_net(), {.sink = sink});
  learn.add<Swa>(Swa::Options{.start = 0.5}).fit(10, 1e-2);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("ended before epoch 5"), std::string::npos)
      << sink->warnings[0];
}

}  // namespace
}  // namespace tern::ended_stream_test
