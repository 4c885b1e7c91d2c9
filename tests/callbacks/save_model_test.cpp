#include "tern/callbacks/save_model.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/ema.h"
#include "tern/callbacks/lr_find.h"
#include "tern/learner/checkpoint.h"
#include "tern/learner/save.h"
#include "tern/learner/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::save_model_test {
namespace {

using namespace testing_support;  // NOLINT
namespace fs = std::filesystem;

// Trains one epoch for each loss and keeps the weights of all epochs.
struct Trained {
  explicit Trained(
      const std::vector<double>& losses,
      SaveModel::Options options = {})
      : learn(point_data(64, 32), point_net(), quiet({.path = folder.path()})) {
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

  TempFolder folder;
  std::vector<Tensors> weights;
  Learner learn;
};

TEST(SaveModel, LoadsTheBestEpochAtTheEnd) {
  Trained t({3, 1, 2});
  t.learn.fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[1]));
  EXPECT_TRUE(t.has("model"));
}

TEST(SaveModel, NeverTakesANaNForTheBest) {
  Trained t({NAN, 2, NAN, 3});
  t.learn.fit(4, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[1]));
}

TEST(SaveModel, LoadsNothingOfAnEarlierFitWhenNoEpochWasTheBest) {
  Trained t({1, NAN, NAN});
  t.learn.fit(1, 1e-2);
  t.learn.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(t.learn), t.weights[2]));
  EXPECT_FALSE(all_equal(parameters_of(t.learn), t.weights[0]));
}

TEST(SaveModel, ForgetsTheBestAtTheNextFit) {
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

TEST(SaveModel, SavesEverySoManyEpochs) {
  Trained t({4, 3, 2, 1}, {.name = "net", .every_epochs = 2});
  t.learn.fit(4, 1e-2);
  EXPECT_FALSE(t.has("net_0"));
  EXPECT_TRUE(t.has("net_1"));
  EXPECT_FALSE(t.has("net_2"));
  EXPECT_TRUE(t.has("net_3"));
}

TEST(SaveModel, KeepsTheBestFew) {
  Trained t({5, 1, 4, 2, 3}, {.top_k = 2});
  t.learn.fit(5, 1e-2);
  for (const int epoch : {0, 2, 4}) {
    EXPECT_FALSE(t.has("model_best_" + std::to_string(epoch))) << epoch;
  }
  EXPECT_TRUE(t.has("model_best_1"));
  EXPECT_TRUE(t.has("model_best_3"));
}

TEST(SaveModel, SavesTheAveragesThatValidationHasJudged) {
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

TEST(SaveModel, KnowsTheBestOfBeforeItsResume) {
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

TEST(SaveModel, StaysQuietInLrFind) {
  Trained t(std::vector<double>(100, 1));
  t.learn.lr_find();
  EXPECT_FALSE(t.has("model"));
}

TEST(SaveModel, NamesTheNumbersThereAre) {
  Trained t({1}, {.monitor = "accurracy"});
  expect_error<c10::ValueError>(
      [&] { t.learn.fit(1); },
      {"accurracy", "valid_loss"});
  expect_error<c10::ValueError>([] { SaveModel({.top_k = -1}); }, {"top_k -1"});
}

}  // namespace
}  // namespace tern::save_model_test
