#include "tern/learner/progress_printer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/tiny.h"

namespace tern::progress_printer_test {
namespace {

using namespace testing_support;  // NOLINT
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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
          "0      {:.6f}    {:.6f}    {:.6f}  {}",
          first.train_loss,
          first.valid_loss,
          first.metrics[0].value,
          clock_text(first.seconds)));
  EXPECT_EQ(sink->lines[2].substr(0, 7), "1      ");
}

// Its table is wider than 80 characters.
void fit_with_many_metrics(const Sink& sink) {
  Learner learn(
      point_data(),
      point_net(),
      {.metrics =
           {accuracy(), top_k_accuracy(1), f_beta(1), precision(), recall()},
       .sink = sink});
  learn.add<LambdaCallback>(
      {.on_epoch_end = [](Learner& l) { l.log("big", 123456789.0); }});
  learn.fit(2);
}

TEST(ProgressPrinter, WrapsATableThatIsWiderThanTheSink) {
  const auto sink = std::make_shared<MemorySink>();
  sink->width = 80;
  fit_with_many_metrics(sink);
  ASSERT_EQ(sink->lines.size(), 6u);
  for (const std::string& line : sink->lines) EXPECT_LE(line.size(), 80u);
  EXPECT_TRUE(sink->lines[1].starts_with("       ")) << sink->lines[1];
  EXPECT_TRUE(sink->lines[1].ends_with("big       time")) << sink->lines[1];
  EXPECT_NE(sink->lines[3].find("1.23457e+08  00:0"), std::string::npos)
      << sink->lines[3];
}

TEST(ProgressPrinter, UsesTheWidthOfTheSink) {
  const auto sink = std::make_shared<MemorySink>();
  sink->width = 132;
  fit_with_many_metrics(sink);
  ASSERT_EQ(sink->lines.size(), 3u);
  EXPECT_GT(sink->lines[0].size(), 80u);
  EXPECT_LE(sink->lines[0].size(), 132u);
}

TEST(ProgressPrinter, DoesNotWrapATableInAFile) {
  std::FILE* const file = std::tmpfile();
  setenv("COLUMNS", "40", 1);  // the width of a terminal, which a file is not
  fit_with_many_metrics(terminal(file));
  unsetenv("COLUMNS");
  std::rewind(file);
  std::string text(10000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_GT(text.find('\n'), 80u) << text;
}

TEST(ProgressPrinter, ShowsLoggedValuesFromTheirFirstEpochOn) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<LambdaCallback>({.on_epoch_end = [](Learner& l) {
    if (l.state().epoch == 1) l.log("extra", 0.25);
  }});
  learn.fit(3);
  ASSERT_EQ(sink->lines.size(), 5u);
  EXPECT_EQ(sink->lines[0], "epoch  train_loss  valid_loss  time");
  EXPECT_EQ(sink->lines[2], "epoch  train_loss  valid_loss  extra     time");
  EXPECT_NE(sink->lines[3].find("  0.250000  "), std::string::npos);
  EXPECT_NE(sink->lines[4].find("  #na#      "), std::string::npos);
}

TEST(ProgressPrinter, PrintsNoHeaderForAFitThatFailsBeforeItsFirstStep) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<LambdaCallback>(
      {.on_batch_begin = [](Learner&) { throw std::runtime_error("no"); }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_TRUE(sink->lines.empty());
}

TEST(ProgressPrinter, EndsARowWithASparklineOfLossesOnRequest) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink, .sparkline = true});
  learn.fit(2);
  EXPECT_TRUE(sink->lines[0].ends_with("time      losses")) << sink->lines[0];
  for (int row : {1, 2}) {
    const std::string& line = sink->lines.at(row);
    // 8 batches; a block is three bytes long.
    EXPECT_EQ(line.size() - line.rfind(' ') - 1, 3u * 8) << line;
  }
}

TEST(Sparkline, ShowsValuesAsBlocksAndGaps) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({3, NAN, 1, INFINITY}), "█ ▁ ");
  EXPECT_EQ(sparkline({5, 5}), "▁▁");
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline({1, 3, 5, 7, 9, 11}, 3), "▁▅█");
}

TEST(ProgressPrinter, MarksMissingValidation) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(256, 0),
      point_net(),
      {.metrics = {accuracy()}, .sink = sink});
  learn.fit(1);
  EXPECT_NE(sink->lines[1].find("#na#        #na#"), std::string::npos)
      << sink->lines[1];
}

TEST(ProgressPrinter, ReportsAFewTimesPerSecondAndEstimatesTheRest) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  // When the fit and the first batch began; bounds of the time that the batches
  // took until the first report.
  Clock::time_point fit_begin, first_begin;
  double at_least = 0, at_most = 0;
  learn.add<LambdaCallback>(
      {.on_train_begin = [&](Learner&) { fit_begin = Clock::now(); },
       .on_batch_begin =
           [&](Learner& l) {
             if (l.state().iteration == 0) first_begin = Clock::now();
             std::this_thread::sleep_for(std::chrono::milliseconds(60));
           },
       .on_step_end =
           [&](Learner&) {
             if (sink->progresses.empty()) at_least = since(first_begin);
           },
       .on_batch_end =
           [&](Learner&) {
             if (at_most == 0 && !sink->progresses.empty()) {
               at_most = since(fit_begin);
             }
           },
       .order = callback_order::kLast});
  learn.fit(1);  // 8 training and 4 validation batches: at least 0.72 s
  ASSERT_GE(sink->progresses.size(), 2u);
  double last = 0;
  for (const Progress& progress : sink->progresses) {
    EXPECT_GE(progress.seconds - last, last == 0 ? 0.19 : 0.2);
    last = progress.seconds;
  }
  const Progress& first = sink->progresses.front();
  EXPECT_TRUE(first.training);
  EXPECT_EQ(first.batches, 8);
  const double rest = (8. - first.batch) / first.batch;
  EXPECT_GE(first.eta_seconds, at_least * rest);
  EXPECT_LE(first.eta_seconds, at_most * rest);
  EXPECT_GT(first.smooth_loss, 0);
  EXPECT_FALSE(sink->progresses.back().training);
}

}  // namespace
}  // namespace tern::progress_printer_test
