#include <algorithm>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/plan.h"
#include "tern/callbacks/diagnose/precision_audit.h"
#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/report/report.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::output_test {
namespace {

using namespace testing_support;  // NOLINT

// Triggers most of the output of a Learner: tables, reports of callbacks,
// warnings of LibTorch, and a stop because of a NaN loss.
void train_and_look(const Sink& sink, const std::filesystem::path& folder) {
  Learner learn(
      point_data(),
      point_net(),
      {.metrics = {accuracy()}, .path = folder, .sink = sink});
  learn.add<LambdaCallback>(
      {.on_batch_end = [](Learner&) { TORCH_WARN("of LibTorch"); }});
  learn.add<CSVLogger>().add<SaveModel>().add<Profiler>();
  learn.lr_find();
  learn.fit_one_cycle(2);
  learn.validate();
  learn.get_preds(Split::valid);
  learn.summary();
  learn.plan();
  learn.audit_precision({.measure_speed = false});
  show_training_loop(learn);
  learn.save("a");
  learn.load("a");
  learn.save_checkpoint("run");
  learn.to_bf16().fit(1);
  learn.to_fp32();
  learn.resume("run");
  learn.export_model(folder / "model.tern");
  learn.add<TerminateOnNaN>();
  learn.add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_loss_begin =
          [](Learner& l) { l.state().outputs[0] = l.state().outputs[0] / 0; },
      .order = callback_order::kLast}));
  learn.fit(1);
}

TEST(Output, GoesOnlyToTheSink) {
  const TempFolder temp;
  std::vector<std::string> said;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(train_and_look(
      [&](const std::string& line) { said.push_back(line); },
      temp.path()));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  for (const char* const beginning :
       {"epoch  train_loss  valid_loss",
        "Profiler: ",
        "warning: of LibTorch",
        "warning: TerminateOnNaN"}) {
    EXPECT_NE(
        std::ranges::count_if(
            said,
            [&](const std::string& line) {
              return line.starts_with(beginning);
            }),
        0)
        << beginning;
  }
}

TEST(Output, IsEmptyWithASilentSink) {
  const TempFolder temp;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(train_and_look(silent(), temp.path()));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Output, GoesToTheTerminalWithoutASink) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Learner learn(point_data(), point_net(), {});
  learn.add<LambdaCallback>(
      {.on_step = [](Learner&) { TORCH_WARN("of LibTorch"); }});
  learn.fit(1);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(shown.starts_with("epoch  train_loss")) << shown;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: of LibTorch\n");
}

}  // namespace
}  // namespace tern::output_test
