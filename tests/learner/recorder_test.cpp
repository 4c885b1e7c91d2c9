#include "tern/learner/recorder.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/error.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/plots/plot.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::recorder_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(Recorder, KeepsEveryLossInOrder) {
  Learner learn(point_data(), point_net(), quiet());
  std::vector<double> seen;
  learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
    if (l.state().training) seen.push_back(l.state().loss.item<float>());
  }});
  learn.fit(2).fit(1);
  EXPECT_EQ(learn.recorder().losses(), seen);
  EXPECT_EQ(seen.size(), 24u);
}

TEST(Recorder, SmoothsLikeFastaiAndRestartsWithEachFit) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(2);
  const auto& losses = learn.recorder().losses();
  double average = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    average = 0.98 * average + 0.02 * losses[i];
    EXPECT_NEAR(
        learn.recorder().smooth_losses()[i],
        average / (1 - std::pow(0.98, i + 1)),
        1e-12);
  }
  const size_t next = losses.size();
  learn.fit(1);
  EXPECT_NEAR(
      learn.recorder().smooth_losses()[next],
      learn.recorder().losses()[next],
      1e-12);
}

TEST(Recorder, KeepsLearningRatesMomentumAndEpochs) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.metrics = {accuracy(), error_rate()}}));
  learn.fit(2, 0.25);
  EXPECT_EQ(learn.recorder().learning_rates(), std::vector<double>(16, 0.25));
  EXPECT_EQ(learn.recorder().momentums(), std::vector<double>(16, 0.9));
  ASSERT_EQ(learn.recorder().epochs().size(), 2u);
  const EpochRecord& last = learn.recorder().epochs()[1];
  EXPECT_EQ(last.epoch, 1);
  EXPECT_EQ(last.train_loss, learn.recorder().smooth_losses().back());
  EXPECT_NEAR(last.metrics.at(0).value + last.metrics.at(1).value, 1, 1e-12);
  EXPECT_EQ(last.metrics.at(0).name, "accuracy");
  EXPECT_GT(last.seconds, 0);
}

TEST(Recorder, RestoresTheMetricsOfEachEpoch) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>({.on_epoch_end = [](Learner& l) {
    if (l.state().epoch == 1) l.log("of_second", 2);
    l.log("of_all", 1);
  }});
  learn.fit(3, 1e-2);
  Recorder restored;
  restored.load_state_dict(learn.recorder().state_dict());
  for (size_t i = 0; i < 3; ++i) {
    const auto& expected = learn.recorder().epochs()[i].metrics;
    const auto& actual = restored.epochs()[i].metrics;
    ASSERT_EQ(actual.size(), expected.size()) << "epoch " << i;
    for (size_t j = 0; j < expected.size(); ++j) {
      EXPECT_EQ(actual[j].name, expected[j].name);
      EXPECT_EQ(actual[j].value, expected[j].value);
    }
  }
}

TEST(Recorder, PlotsTheLosses) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(2).recorder().plot_losses(temp / "losses.svg");
  std::stringstream svg;
  svg << std::ifstream(temp / "losses.svg").rdbuf();
  EXPECT_NE(svg.str().find("</svg>"), std::string::npos);
  EXPECT_NE(svg.str().find("train, smoothed"), std::string::npos);
  expect_error<IoError>(
      [&] { learn.recorder().plot_losses(temp / "no" / "losses.svg"); },
      {"losses.svg", "No such file"});
}

TEST(Recorder, KeepsTheLossScalesAndTheSkippedSteps) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16({.init_scale = 1024, .force_fp16 = true});
  learn.add(overflow_at({2, 5})).fit(1);
  EXPECT_EQ(
      learn.recorder().loss_scales(),
      (std::vector<double>{1024, 1024, 512, 512, 512, 256, 256, 256}));
  EXPECT_EQ(learn.recorder().skipped_steps(), (std::vector<int64_t>{2, 5}));
  learn.to_fp32().fit(1);
  EXPECT_TRUE(std::isnan(learn.recorder().loss_scales().back()));
  EXPECT_EQ(learn.recorder().loss_scales().size(), 16u);

  Recorder loaded;
  StateDict state = learn.recorder().state_dict();
  loaded.load_state_dict(state);
  EXPECT_EQ(loaded.skipped_steps(), learn.recorder().skipped_steps());
  // The type in older checkpoints.
  state["skipped_steps"] = state["skipped_steps"].to(torch::kLong);
  loaded.load_state_dict(state);
  EXPECT_EQ(loaded.skipped_steps(), learn.recorder().skipped_steps());
  EXPECT_EQ(loaded.loss_scales()[5], 256);

  const Plot plot = learn.recorder().loss_scale_plot();
  ASSERT_EQ(plot.curves.size(), 2u);
  EXPECT_EQ(plot.curves[1].x, (std::vector<double>{3, 6}));
  learn.recorder().plot_loss_scales(temp / "scale.svg");
}

TEST(Recorder, MarksTheStartOfAFitAndSmoothsAcrossIt) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(4).fit(1);
  Recorder& recorder = learn.recorder();
  EXPECT_EQ(recorder.learning_rate_plot().marks, std::vector<double>{33});
  const Plot plot = recorder.loss_plot();
  EXPECT_EQ(plot.marks, std::vector<double>{33});
  const std::vector<double>& smooth = plot.curves.at(1).y;
  // One more batch hardly changes the average of 32 batches.
  EXPECT_NEAR(
      smooth[32] - smooth[31],
      (recorder.losses()[32] - smooth[31]) * 0.02 / (1 - std::pow(0.98, 33)),
      1e-12);

  Recorder loaded;
  StateDict state = recorder.state_dict();
  loaded.load_state_dict(state);
  EXPECT_EQ(loaded.loss_plot().marks, plot.marks);
  // Older checkpoints have no "fit_calls".
  StateDict older;
  for (const auto& entry : state) {
    if (entry.key() != "fit_calls") older.insert(entry.key(), entry.value());
  }
  loaded.load_state_dict(older);
  EXPECT_TRUE(loaded.loss_plot().marks.empty());
}

TEST(Recorder, PlotsLearningRatesMomentumAndMetrics) {
  const TempFolder temp;
  Learner learn(
      point_data(),
      point_net(),
      quiet({.metrics = {accuracy(), error_rate()}}));
  learn.fit(3, 0.25);
  Recorder& recorder = learn.recorder();
  EXPECT_EQ(
      recorder.learning_rate_plot().curves.at(0).y,
      std::vector<double>(24, 0.25));
  const Plot metrics = recorder.metric_plot();
  ASSERT_EQ(metrics.curves.size(), 2u);
  EXPECT_EQ(metrics.curves[0].label, "accuracy");
  EXPECT_EQ(metrics.curves[0].x, (std::vector<double>{0, 1, 2}));
  EXPECT_TRUE(metrics.curves[0].markers);
  recorder.plot_learning_rates(temp / "lr.png");
  recorder.plot_momentums(temp / "momentum.svg");
  recorder.plot_metrics(temp / "metrics.svg");
  EXPECT_EQ(temp.entries(), 3);
}

TEST(Recorder, PlotsLossesOnALogarithmicAxis) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1, 0.25);
  Recorder& recorder = learn.recorder();
  EXPECT_FALSE(recorder.loss_plot().log_y);
  EXPECT_TRUE(recorder.loss_plot().clip_outliers);
  EXPECT_TRUE(recorder.loss_plot({.log_y = true}).log_y);
  EXPECT_FALSE(recorder.loss_plot({.clip_outliers = false}).clip_outliers);
  recorder.plot_losses(temp / "losses.svg", {.log_y = true});
  std::ifstream file(temp / "losses.svg");
  std::stringstream svg;
  svg << file.rdbuf();
  EXPECT_NE(svg.str().find("e-01<"), std::string::npos);
}

TEST(Recorder, PlotsValuesThatCallbacksLogPerBatch) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>({.on_step = [](Learner& l) {
    if (l.state().batch % 2 == 0) l.log("norm", 2.0 * l.state().batch);
  }});
  learn.fit(1, 0.1).fit(1, 0.1);
  Recorder& recorder = learn.recorder();
  const Plot plot = recorder.logged_plot("norm", {.log_y = true});
  EXPECT_TRUE(plot.log_y);
  ASSERT_EQ(plot.curves.size(), 2u);
  EXPECT_EQ(plot.curves[0].x, (std::vector<double>{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(plot.curves[0].y, (std::vector<double>{0, 4, 8, 12, 0, 4, 8, 12}));
  EXPECT_EQ(plot.curves[1].label, "smoothed");
  EXPECT_DOUBLE_EQ(plot.curves[1].y[0], 0);
  EXPECT_EQ(plot.marks, std::vector<double>{9});
  recorder.plot_logged(temp / "norm.svg", "norm");
  EXPECT_EQ(temp.entries(), 1);
  expect_error<c10::ValueError>(
      [&] { recorder.plot_logged(temp / "x.svg", "nrom"); },
      {"\"nrom\"", "one of norm"});
  Learner other(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { other.recorder().logged_plot("norm"); },
      {"no callback has logged \"norm\"", "Learner::log"});
}

TEST(Recorder, MarksTheLoadedEpoch) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.fit(3, 0.1);
  Recorder& recorder = learn.recorder();
  EXPECT_TRUE(recorder.metric_plot().marks.empty());
  recorder.add_call("load", /*loaded_epoch=*/1);
  recorder.add_call("load of an epoch that does not exist", 7);
  Recorder resumed;
  resumed.load_state_dict(recorder.state_dict());
  for (Recorder* const r : {&recorder, &resumed}) {
    const Curve dot = r->loss_plot().curves.back();
    EXPECT_EQ(dot.label, "loaded by SaveModel");
    EXPECT_EQ(dot.x, std::vector<double>{16});
    EXPECT_EQ(dot.y, std::vector<double>{r->epochs()[1].valid_loss});
    EXPECT_EQ(r->metric_plot().marks, std::vector<double>{1});
  }
  // Older checkpoints have no "fit_loads".
  StateDict older;
  for (const auto& entry : recorder.state_dict()) {
    if (entry.key() != "fit_loads") older.insert(entry.key(), entry.value());
  }
  resumed.load_state_dict(older);
  EXPECT_TRUE(resumed.metric_plot().marks.empty());
}

}  // namespace
}  // namespace tern::recorder_test
