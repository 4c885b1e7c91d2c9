#include "tern/learner/progress_printer.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/tiny.h"

namespace tern::progress_printer_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(ProgressPrinter, PrintsFastaisTable) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(),
      point_net(),
      {.metrics = {accuracy()}, .sink = sink});
  learn.fit(2);
  ASSERT_EQ(sink->lines.size(), 3u);
  EXPECT_EQ(sink->lines[0], "epoch  train_loss  valid_loss  accuracy  time");
  const EpochRecord& first = learn.recorder().epochs()[0];
  EXPECT_EQ(
      sink->lines[1],
      fmt::format(
          "0      {:.6f}    {:.6f}    {:.6f}  00:00",
          first.train_loss,
          first.valid_loss,
          first.metrics[0].value));
  EXPECT_EQ(sink->lines[2].substr(0, 7), "1      ");
}

TEST(ProgressPrinter, EndsARowWithTheLossesAsBlocksOnRequest) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink, .sparkline = true});
  learn.fit(2);
  EXPECT_TRUE(sink->lines[0].ends_with("time      losses")) << sink->lines[0];
  for (int row : {1, 2}) {
    const std::string& line = sink->lines.at(row);
    // 8 batches; a block takes three bytes.
    EXPECT_EQ(line.size() - line.find("00:00  ") - 10, 3u * 8) << line;
  }
}

TEST(ProgressPrinter, ShowsThatThereIsNoValidation) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(256, 0),
      point_net(),
      {.metrics = {accuracy()}, .sink = sink});
  learn.fit(1);
  EXPECT_NE(sink->lines[1].find("#na#        #na#"), std::string::npos)
      << sink->lines[1];
}

TEST(ProgressPrinter, ReportsAFewTimesASecondAndEstimatesTheRest) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<LambdaCallback>({.on_batch_begin = [](Learner&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }});
  learn.fit(1);  // 8 batches and 4 of validation: 0.72 s
  EXPECT_GE(sink->progresses.size(), 2u);
  EXPECT_LE(sink->progresses.size(), 5u);
  const Progress& first = sink->progresses.front();
  EXPECT_TRUE(first.training);
  EXPECT_EQ(first.batches, 8);
  EXPECT_NEAR(first.eta_seconds, 0.06 * (8 - first.batch), 0.2);
  EXPECT_GT(first.smooth_loss, 0);
  EXPECT_FALSE(sink->progresses.back().training);
}

}  // namespace
}  // namespace tern::progress_printer_test
