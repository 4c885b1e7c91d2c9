#include "tern/callbacks/saving/save_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/report/report.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::save_model_test {
namespace {

using namespace testing_support;  // NOLINT
namespace fs = std::filesystem;

// Prepares training with one epoch per loss and records the weights of all
// epochs.
struct Trained {
  explicit Trained(
      const std::vector<double>& losses,
      SaveModel::Options options = {})
      : learn(
            point_data(64, 32),
            point_net(),
            {.path = folder.path(), .sink = sink}) {
    learn.add(scripted_valid_loss(losses))
        .add<SaveModel>(options)
        .add<LambdaCallback>(
            LambdaCallbackOptions{.on_epoch_end = [this](Learner& l) {
              weights.push_back(parameters_of(l));
            }});
  }

  bool has(const std::string& name) const {
    return fs::exists(folder / "models" / (name + ".safetensors"));
  }

  // Returns the parameters in the file of the best model.
  Tensors saved() {
    const StateDict state =
        load_weights(folder / "models" / "model.safetensors");
    Tensors tensors;
    for (const ModelTensor& p : learn.model().parameters()) {
      tensors.push_back(state[p.name].clone());
    }
    return tensors;
  }

  int64_t mentions(const std::string& words) const {
    return std::count_if(
        sink->lines.begin(),
        sink->lines.end(),
        [&](const std::string& line) {
          return line.find(words) != std::string::npos;
        });
  }

  TempFolder folder;
  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  std::vector<Tensors> weights;
  Learner learn;
};

TEST(SaveModel, PrintsTheBestEpochAndThatItWasLoaded) {
  Trained run({3, 1, 2});
  run.learn.fit(3, 1e-2);
  EXPECT_EQ(run.mentions("SaveModel: epoch 0 is the best so far"), 1);
  EXPECT_EQ(
      run.mentions(
          "SaveModel: epoch 1 is the best so far, with valid_loss 1.000000; "
          "saved \"model\"."),
      1);
  EXPECT_EQ(run.mentions("SaveModel: epoch 2"), 0);
  EXPECT_EQ(
      run.mentions(
          "SaveModel: loaded \"model\" of epoch 1, the best, with valid_loss "
          "1.000000."),
      1);
}

TEST(SaveModel, StatesInALaterFitWhatTheBestIsComparedWith) {
  for (const bool resets : {true, false}) {
    Trained run({1, /* second fit */ 3, 0.5}, {.reset_on_fit = resets});
    run.learn.fit(1, 1e-2);
    EXPECT_EQ(run.mentions("epoch 0 is the best so far, with"), 1);
    run.learn.fit(2, 1e-2);
    // Epochs are counted over all fits.
    const std::string best =
        resets ? "epoch 1 is the best of this fit so far, with valid_loss 0.5"
               : "epoch 2 is the best of all fits so far, with valid_loss 0.5";
    EXPECT_EQ(run.mentions(best), 1);
    EXPECT_EQ(run.mentions("of this fit so far"), resets ? 2 : 0);
  }
}

TEST(SaveModel, CanKeepTheBestOfAllFits) {
  for (const bool resets : {true, false}) {
    Trained run(
        {2, 1, /* second fit */ 3, 1.5},
        {.top_k = 2, .reset_on_fit = resets});
    run.learn.fit(2, 1e-2).fit(2, 1e-2);
    EXPECT_TRUE(
        all_equal(parameters_of(run.learn), run.weights[resets ? 3 : 1]));
    EXPECT_TRUE(all_equal(run.saved(), run.weights[resets ? 3 : 1]));
    if (resets) continue;
    EXPECT_TRUE(run.has("model_best_1") && run.has("model_best_3"));
    EXPECT_FALSE(run.has("model_best_0"));
    run.learn.load("model");
  }
}

TEST(SaveModel, UsesTheModeForALoggedValue) {
  for (const char* const mode : {"min", "max"}) {
    Trained run({0, 0, 0}, {.monitor = "perplexity", .mode = mode});
    run.learn.add<LambdaCallback>({.on_epoch_end = [](Learner& l) {
      l.log("perplexity", std::vector{30, 10, 20}.at(l.state().epoch));
    }});
    run.learn.fit(3, 1e-2);
    EXPECT_TRUE(all_equal(
        parameters_of(run.learn),
        run.weights[std::string_view(mode) == "min" ? 1 : 0]));
  }
  Trained run({1}, {.monitor = "perplexity"});
  expect_error<c10::ValueError>(
      [&] { run.learn.fit(1); },
      {"[SaveModel]", ".mode = \"min\" or \"max\""});
}

TEST(SaveModel, RecordsTheLoadedEpochInTheReportAndTheLog) {
  Trained run({3, 1, 2});
  run.learn.add<JsonLinesLogger>().fit(3, 1e-2);
  EXPECT_NE(
      make_report(run.learn).to_string().find(
          "SaveModel: load(model) of epoch 1, the best by valid_loss"),
      std::string::npos);
  const auto log = read_file(run.folder / "history.jsonl");
  EXPECT_TRUE(
      std::string(log.begin(), log.end())
          .ends_with("{\"event\":\"load\",\"name\":\"model\",\"epoch\":1}\n"));
}

// ---- Runs that have saved no model ----

// Writes a model as an earlier, unrelated run would leave it.
void save_of_another_training(const fs::path& path) {
  Learner other(point_data(64, 32), point_net(99), quiet({.path = path}));
  other.save("model");
}

std::shared_ptr<Callback> stop_in_epoch(int64_t epoch) {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [epoch](Learner& l) {
        if (l.state().training && l.state().epoch == epoch) l.request_stop();
      }});
}

TEST(SaveModel, LoadWarnsAndLoadsNothingAfterAStopInTheFirstEpoch) {
  for (const bool is_left : {false, true}) {
    for (const bool before_fit : {false, true}) {
      Trained t({3, 2, 1});
      if (is_left) save_of_another_training(t.folder.path());
      if (before_fit) t.learn.request_stop();
      t.learn.add(stop_in_epoch(0)).fit(3, 1e-2);
      ASSERT_EQ(t.learn.state().result, FitResult::interrupted);
      const Tensors before = parameters_of(t.learn);
      t.learn.load("model");
      EXPECT_TRUE(all_equal(parameters_of(t.learn), before));
      ASSERT_EQ(t.sink->warnings.size(), 1u);
      EXPECT_NE(
          t.sink->warnings[0].find("Not loading \"model\""),
          std::string::npos);
    }
  }
}

TEST(SaveModel, OfASingleFitStillGuardsLoadAfterIt) {
  for (const double loss : {double{NAN}, 1.0}) {
    const TempFolder folder;
    save_of_another_training(folder.path());
    Learner learn(
        point_data(64, 32),
        point_net(),
        quiet({.path = folder.path()}));
    learn.add(scripted_valid_loss({loss, loss}));
    learn.fit(1, 1e-2, {std::make_shared<SaveModel>()});
    if (std::isnan(loss)) {
      expect_error<DataError>(
          [&] { learn.load("model"); },
          {"written by a different run", "NaN in the one epoch"});
      learn.request_stop();
      learn.fit(1, 1e-2);
    }
    const Tensors before = parameters_of(learn);
    learn.load("model");
    EXPECT_TRUE(all_equal(parameters_of(learn), before));
  }
}

TEST(SaveModel, LoadUsesTheBestSoFarAfterALaterStop) {
  Trained t({1, 2, 3});
  t.learn.add(stop_in_epoch(1)).fit(3, 1e-2);
  ASSERT_EQ(t.learn.state().result, FitResult::interrupted);
  t.learn.load("model");
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
  EXPECT_TRUE(t.sink->warnings.empty());
}

TEST(SaveModel, ReportsThatTheMonitorWasNaNInAllEpochs) {
  for (const bool is_left : {false, true}) {
    Trained t({NAN, NAN, NAN});
    if (is_left) save_of_another_training(t.folder.path());
    t.learn.add<EarlyStopping>({.patience = 9}).fit(3, 1e-2);
    ASSERT_EQ(t.sink->warnings.size(), 2u);
    EXPECT_EQ(
        t.sink->warnings[0],
        std::string("SaveModel: valid_loss was NaN in all 3 epochs, so there "
                    "is no best epoch: nothing was saved, and the model keeps "
                    "the last epoch.") +
            (is_left ? " \"model\" belongs to a different run." : ""));
    EXPECT_EQ(
        t.sink->warnings[1],
        "EarlyStopping: valid_loss was NaN in all 3 epochs, so improvement "
        "could not be measured.");
    expect_error<DataError>(
        [&] { t.learn.load("model"); },
        {"valid_loss was NaN in all 3 epochs",
         is_left ? "was written by a different run" : "no such file"});
    EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[2]));
    if (!is_left) continue;
    // The file can still be loaded after removing SaveModel, and by a Learner
    // that has not trained yet.
    t.learn.remove(*t.learn.find<SaveModel>()).load("model");
    EXPECT_FALSE(all_equal(parameters_of(t.learn), t.weights[2]));
    Trained other({1});
    save_of_another_training(other.folder.path());
    other.learn.load("model");
    EXPECT_TRUE(all_equal(parameters_of(other.learn), parameters_of(t.learn)));
  }
}

TEST(SaveModel, ReportsThatTheMonitorHadNoValueInASecondFit) {
  Trained t({1, 1, 1}, {.monitor = "score", .mode = "max"});
  bool logs = true;
  t.learn.add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
    if (logs) l.log("score", 1);
  }});
  t.learn.fit(1, 1e-2);
  EXPECT_TRUE(t.sink->warnings.empty());
  logs = false;
  t.learn.fit(2, 1e-2);
  ASSERT_EQ(t.sink->warnings.size(), 1u);
  EXPECT_NE(
      t.sink->warnings[0].find("score had no value in all 2 epochs"),
      std::string::npos);
  // The model of the first fit belongs to this run.
  t.learn.load("model");
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, LoadsTheBestEpochAtTheEnd) {
  Trained t({3, 1, 2});
  t.learn.fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[1]));
  EXPECT_TRUE(t.has("model"));
}

TEST(SaveModel, IgnoresImprovementsSmallerThanMinDelta) {
  for (const double min_delta : {0.0, 0.5}) {
    Trained t({3, 2.8, 4}, {.min_delta = min_delta});
    t.learn.fit(3, 1e-2);
    EXPECT_TRUE(
        all_equal(parameters_of(t.learn), t.weights[min_delta == 0 ? 1 : 0]));
  }
}

TEST(SaveModel, NeverTreatsNaNAsTheBest) {
  Trained t({NAN, 2, NAN, 3});
  t.learn.fit(4, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[1]));
}

TEST(SaveModel, LoadsNoModelOfAnEarlierFitIfNoEpochWasTheBest) {
  Trained t({1, NAN, NAN});
  t.learn.fit(1, 1e-2);
  t.learn.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[2]));
  EXPECT_FALSE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, ResetsTheBestValueAtTheNextFit) {
  Trained t({1, /* second fit */ 9, 8});
  t.learn.fit(1, 1e-2);
  t.learn.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[2]));
}

TEST(SaveModel, KeepsTheLastWeightsOnRequest) {
  Trained t({1, 2}, {.load_best = false});
  t.learn.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[1]));
  t.learn.load("model");
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, SavesEveryNEpochs) {
  Trained t({4, 3, 2, 1}, {.name = "net", .every_epochs = 2});
  t.learn.fit(4, 1e-2);
  EXPECT_FALSE(t.has("net_0"));
  EXPECT_TRUE(t.has("net_1"));
  EXPECT_FALSE(t.has("net_2"));
  EXPECT_TRUE(t.has("net_3"));
}

TEST(SaveModel, KeepsTheTopK) {
  Trained t({5, 1, 4, 2, 3}, {.top_k = 2});
  t.learn.fit(5, 1e-2);
  for (const int epoch : {0, 2, 4}) {
    EXPECT_FALSE(t.has("model_best_" + std::to_string(epoch))) << epoch;
  }
  EXPECT_TRUE(t.has("model_best_1"));
  EXPECT_TRUE(t.has("model_best_3"));
}

TEST(SaveModel, SavesTheAveragedWeightsThatValidationEvaluated) {
  Trained t({1, 2});
  Tensors judged;
  t.learn.add<Ema>(0.5).add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
        if (!l.state().training && l.state().epoch == 0) {
          judged = parameters_of(l);
        }
      }});
  t.learn.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), judged));
  EXPECT_FALSE(all_equal(t.weights[0], judged));
}

TEST(SaveModel, KeepsTheMeanOfSwaInTheModelAndReportsIt) {
  Trained t({1, 2, 3});
  t.learn.add<Swa>({.start = 0.5}).fit(3, 1e-1);
  for (size_t i = 0; i < t.weights[0].size(); ++i) {
    EXPECT_TRUE(torch::allclose(
        parameters_of(t.learn)[i],
        (t.weights[1][i] + t.weights[2][i]) / 2,
        1e-5,
        1e-6));
  }
  ASSERT_EQ(t.mentions("the model keeps the averaged weights of Swa"), 1);
  EXPECT_FALSE(t.learn.find<SaveModel>()->has_loaded());
  t.learn.load("model");
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, LoadsTheBestWhenSwaHasNoMeanYet) {
  Trained t({1, 2, 3, 4});
  t.learn.add<Swa>({.start = 0.8})
      .add<LambdaCallback>(
          {.on_epoch_end =
               [](Learner& l) {
                 if (l.state().epoch == 1) l.state().stop_training = true;
               }})
      .fit(4, 1e-1);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, NeverSavesWeightsThatAreNotFinite) {
  for (const bool with_ema : {false, true}) {
    Trained t({3, 2, 1, 4}, {.top_k = 2});
    if (with_ema) t.learn.add<Ema>(0.5);
    Tensors best;
    t.learn
        .add<LambdaCallback>(
            {.on_batch_end =
                 [&](Learner& l) {
                   const TrainState& s = l.state();
                   if (s.epoch == 0 || s.batch + 1 < s.batches) return;
                   if (s.epoch == 1) best = t.saved();
                   const torch::NoGradGuard no_grad;
                   l.model().parameters()[0].tensor.fill_(INFINITY);
                 },
             .order = callback_order::kAverages - 1})
        .fit(4, 1e-2);
    EXPECT_TRUE(all_equal(parameters_of(t.learn), best));
    ASSERT_EQ(t.sink->warnings.size(), 1u);
    EXPECT_NE(
        t.sink->warnings[0].find(
            "is not saved after epoch 1: \"0.weight\" holds values that are "
            "not finite"),
        std::string::npos)
        << t.sink->warnings[0];
    EXPECT_TRUE(t.has("model_best_0"));
    EXPECT_FALSE(t.has("model_best_1"));
  }
}

TEST(SaveModel, RejectsAnUnwritableFolderBeforeTheFirstStep) {
  Trained t({1});
  std::ofstream(t.folder / "models") << "a file";
  const Tensors before = parameters_of(t.learn);
  expect_error<IoError>([&] { t.learn.fit(1); }, {"models"});
  EXPECT_TRUE(all_equal(parameters_of(t.learn), before));
}

TEST(SaveModel, LeavesNoFileFromItsCheckOfTheFolder) {
  Trained t({NAN});
  t.learn.fit(1);
  EXPECT_TRUE(fs::is_empty(t.folder / "models"));
}

// Replaces the folder by a file at the start of epoch `from` and restores it at
// the start of epoch `until`.
std::shared_ptr<Callback>
no_folder(const TempFolder& folder, int64_t from, int64_t until) {
  const fs::path models = folder / "models", away = folder / "away";
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_begin =
          [=](Learner& l) {
            if (l.state().epoch == from) {
              fs::rename(models, away);
              std::ofstream(models) << "a file";
            } else if (l.state().epoch == until) {
              fs::remove(models);
              fs::rename(away, models);
            }
          },
      .on_train_end =
          [=](Learner&) {
            if (!fs::exists(away)) return;
            fs::remove(models);
            fs::rename(away, models);
          }});
}

TEST(SaveModel, WarnsOnceAndContinuesIfTheDiskFailsLater) {
  Trained t({5, 4, 3, 3.5, 6}, {.every_epochs = 1});
  t.learn.add(no_folder(t.folder, 1, 3)).fit(5, 1e-2);
  EXPECT_EQ(t.weights.size(), 5u);
  ASSERT_EQ(t.sink->warnings.size(), 1u);
  EXPECT_NE(t.sink->warnings[0].find("Training continues"), std::string::npos);
  // The best epoch that was written to disk.
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[3]));
}

TEST(SaveModel, KeepsTheLastEpochIfItIsTheBestButCouldNotBeSaved) {
  Trained t({5, 6, 4});
  t.learn.add(no_folder(t.folder, 2, 9)).fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[2]));
  ASSERT_EQ(t.sink->warnings.size(), 2u);
  EXPECT_NE(
      t.sink->warnings[1].find("the model keeps the last epoch"),
      std::string::npos);
}

// Simulates a disk that becomes full between the two files.
TEST(SaveModel, DoesNotLoadTheOptimizerOfADifferentSave) {
  Trained t({1, 0, 2});
  const fs::path file = t.folder / "models" / "model.safetensors";
  t.learn
      .add<LambdaCallback>(
          {.on_epoch_begin =
               [&](Learner& l) {
                 if (l.state().epoch != 1) return;
                 fs::rename(file, t.folder / "kept");
                 fs::create_directory(file);
               }})
      .add<LambdaCallback>(
          {.on_train_end =
               [&](Learner&) {
                 fs::remove(file);
                 fs::rename(t.folder / "kept", file);
               }})
      .fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[0]));
  EXPECT_NE(
      t.sink->warnings.back().find("the optimizer starts with a new state"),
      std::string::npos);
}

TEST(SaveModel, RejectsASecondSaveModelWithTheSameName) {
  Trained t({1});
  expect_error<c10::ValueError>(
      [&] { t.learn.add<SaveModel>({.monitor = "train_loss"}); },
      {"the SaveModel of valid_loss and the SaveModel of train_loss",
       "both write \"model\"",
       "a different .name"});
  expect_error<c10::ValueError>(
      [&] { t.learn.add<SaveModel>({.name = "./model"}); },
      {"both write"});
  t.learn.add<SaveModel>({.monitor = "train_loss", .name = "other"}).fit(1);
  EXPECT_TRUE(t.has("other"));
}

TEST(SaveModel, RemembersTheBestFromBeforeAResume) {
  const TempFolder folder;
  const auto make = [&](std::vector<double> losses) {
    auto learn = std::make_unique<Learner>(
        point_data(64, 32),
        point_net(),
        quiet({.path = folder.path()}));
    learn->add(scripted_valid_loss(std::move(losses))).add<SaveModel>();
    return learn;
  };
  const auto first = make({1});
  Tensors best;
  first->add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_end =
          [&](Learner& l) {
            best = parameters_of(l);
            l.save_checkpoint(folder / "run");
            throw std::runtime_error("killed");
          },
      .order = callback_order::kSaveCheckpoint}));
  EXPECT_THROW(first->fit(3, 1e-2), std::runtime_error);
  const auto second = make({5, 6});
  second->resume(folder / "run").fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*second), best));
}

// A program with three fits of two epochs each and a checkpoint at the end of
// each fit.
class TwiceStarted {
 public:
  std::unique_ptr<Learner> process(std::vector<double> losses) {
    auto learn = std::make_unique<Learner>(
        point_data(64, 32),
        point_net(),
        LearnerOptions{.path = folder_.path(), .sink = sink});
    learn->add(scripted_valid_loss(std::move(losses)))
        .add<SaveModel>()
        .add<SaveCheckpoint>(
            {.folder = "run", .every_epochs = 2, .keep = 0, .durable = false});
    return learn;
  }

  // Is killed in the third fit, after saving the model of its first epoch.
  void first_process() {
    const auto learn = process({2, 1, 4, 3, 0});
    learn->fit(2, 1e-2);
    best = parameters_of(*learn);
    learn->fit(2, 1e-2);
    second_best = parameters_of(*learn);
    learn->add<LambdaCallback>(
        {.on_epoch_end = [](Learner&) { throw std::runtime_error("killed"); },
         .order = callback_order::kLast});
    EXPECT_THROW(learn->fit(2, 1e-2), std::runtime_error);
  }

  fs::path models() const { return folder_ / "models"; }
  bool has(const std::string& name) const {
    return fs::exists(models() / name);
  }

  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  Tensors best, second_best;

 private:
  TempFolder folder_;
};

TEST(SaveModel, LoadsTheModelOfTheTimeOfTheCheckpoint) {
  TwiceStarted training;
  training.first_process();
  const auto learn = training.process({0, 5});
  learn->resume("run").fit(2, 1e-2).fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*learn), training.second_best));
  learn->load("model");
  EXPECT_TRUE(all_equal(parameters_of(*learn), training.second_best));
  // A later fit saves as usual and leaves only its own model.
  EXPECT_TRUE(training.has("model.replaced.safetensors"));
  const auto& lines = training.sink->lines;
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("Models saved after this checkpoint");
  }));
  learn->fit(2, 1e-2);
  EXPECT_TRUE(training.has("model.safetensors"));
  EXPECT_FALSE(training.has("model.replaced.safetensors"));
  EXPECT_FALSE(training.has(".before"));
}

TEST(SaveModel, OverwritesAModelWhoseOptimizerFileWasRemoved) {
  TwiceStarted training;
  const auto learn = training.process({2, 1, 0, 0});
  learn->fit(2, 1e-2);
  fs::remove(training.models() / "model.optimizer.safetensors");
  learn->fit(2, 1e-2);
  EXPECT_TRUE(training.has("model.optimizer.safetensors"));
  EXPECT_TRUE(training.sink->warnings.empty());
}

TEST(SaveModel, ReportsThatTheModelOfAnOlderCheckpointIsGone) {
  TwiceStarted training;
  training.first_process();
  const auto learn = training.process({});
  training.sink->warnings.clear();
  learn->resume("run/step_4").fit(2, 1e-2);
  ASSERT_EQ(training.sink->warnings.size(), 1u);
  EXPECT_NE(
      training.sink->warnings[0].find(
          "\"model\" of epoch 1, the best, no longer exists"),
      std::string::npos);
  EXPECT_TRUE(training.has("model.replaced.safetensors"));
}

TEST(SaveModel, WritesNothingInLrFind) {
  Trained t(std::vector<double>(100, 1));
  t.learn.lr_find();
  EXPECT_FALSE(t.has("model"));
}

TEST(SaveModel, NamesTheAvailableMonitors) {
  Trained t({1}, {.monitor = "accurracy"});
  expect_error<c10::ValueError>(
      [&] { t.learn.fit(1); },
      {"accurracy", "valid_loss"});
  expect_error<c10::ValueError>(
      [] { SaveModel({.top_k = -1}); },
      {"top_k is -1"});
}

}  // namespace
}  // namespace tern::save_model_test
