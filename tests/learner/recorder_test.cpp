#include "tern/learner/recorder.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/learner/lambda_callback.h"
#include "tern/learner/learner.h"
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

TEST(Recorder, SmoothsAsFastaiAndAnewWithEachFit) {
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

TEST(Recorder, KeepsRatesMomentumAndEpochs) {
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

TEST(Recorder, DrawsTheLosses) {
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

}  // namespace
}  // namespace tern::recorder_test
