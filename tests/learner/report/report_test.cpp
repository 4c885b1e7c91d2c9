#include "tern/learner/report/report.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sys/resource.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/logging/html_report.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::report_test {
namespace {

using namespace testing_support;  // NOLINT

std::string text_of(const std::filesystem::path& file) {
  const auto bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

void expect_words(
    const std::string& html,
    std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(html.find(word), std::string::npos) << word;
  }
}

// A run that uses every section of a report.
void train_and_report(const std::filesystem::path& file) {
  DataBunch data = point_data();
  data.classes = {"<below>", "above & beyond"};
  Learner learn(
      data,
      point_net(),
      quiet({.loss = torch::nn::CrossEntropyLoss(), .metrics = {accuracy()}}));
  learn.to_fp16({.init_scale = 4096, .growth_interval = 6, .force_fp16 = true});
  learn.add(overflow_at({1, 3, 20}));
  learn.fit_one_cycle(6, 0.1);
  const ReportSection section = [&](HtmlPage& page) {
    page.heading("Confusion matrix");
    page.matrix(data.classes, data.classes, {{45, 3}, {5, 47}});
    Plot picture;
    picture.title = "a picture";
    page.pictures({{to_png(picture, 0.5), "predicted <below>"}});
  };
  make_report(learn, {.title = "Points & more", .sections = {section}})
      .save(file);
}

TEST(Report, ShowsResultsCurvesConfigurationAndEnvironment) {
  const TempFolder temp;
  train_and_report(temp / "report.html");
  const std::string html = text_of(temp / "report.html");
  expect_words(
      html,
      {"Points &amp; more",
       "train_loss",
       "accuracy",
       "Learning rate",
       "fit_one_cycle(6, 0.1)",
       "0.004, at most 0.1, ",
       "CrossEntropyLoss",
       "[32, 2]",
       "Loss scale",
       "3 of 48 steps were skipped",
       "Batches 2, 4, 21.",
       "Confusion matrix",
       "data:image/png;base64,",
       "fp16 model, fp32 master weights",
       "tern::optim::AdamW",
       "&lt;below&gt;, above &amp; beyond",
       "BatchNorm1d",
       "LibTorch"});
  EXPECT_EQ(html.find("<below>"), std::string::npos);
  EXPECT_LT(html.size(), 2'000'000u);
  // For the browser test, tests/learner/report/check_report.py.
  if (const char* folder = std::getenv("TERN_REPORT_FOLDER")) {
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(
        temp / "report.html",
        std::filesystem::path(folder) / "report.html",
        std::filesystem::copy_options::overwrite_existing);
  }
}

TEST(Report, WorksBeforeTrainingAndWithoutValidation) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  std::string html = make_report(learn).to_string();
  expect_words(html, {"No epoch is complete yet", "Nothing was trained yet"});
  learn.fit(1);
  html = make_report(learn).to_string();
  expect_words(html, {"#na#", "none"});
}

TEST(Report, ListsTheCallsBetweenFits) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"1", "3"});
  learn.lr_find({.num_it = 6});
  learn.fine_tune(1);
  learn.freeze_to(1);
  std::string order;
  for (const CallRecord& call : learn.recorder().calls()) {
    order += call.call.substr(0, call.call.find_last_of('(')) + " ";
  }
  EXPECT_EQ(
      order,
      "lr_find fine_tune(1): freeze fine_tune(1): fit_one_cycle "
      "fine_tune(1): unfreeze fine_tune(1): fit_one_cycle freeze_to ");
  expect_words(
      make_report(learn).to_string(),
      {"lr_find(1e-07, 10, num_it = 6)",
       "fine_tune(1): unfreeze()",
       "freeze_to(1)"});
  EXPECT_EQ(learn.recorder().loss_plot().marks, std::vector<double>{9});
}

TEST(Report, AssignsCallsOfACallbackToItsFit) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  learn.split({"1", "3"});
  learn.save("first");
  learn.freeze().load("first");
  learn
      .add<LambdaCallback>(
          {.on_epoch_begin =
               [](Learner& l) {
                 if (l.state().epoch == 1) l.unfreeze().load("first");
               }})
      .fit(2, 0.01);
  std::vector<std::string> calls;
  for (const CallRecord& call : learn.recorder().calls()) {
    calls.push_back(call.call);
  }
  EXPECT_EQ(
      calls,
      (std::vector<std::string>{"freeze()", "load(first)", "fit(2, 0.01)"}));
  EXPECT_TRUE(learn.recorder().loss_plot().marks.empty());
  expect_words(make_report(learn).to_string(), {"load(first)"});
}

TEST(Report, NamesTheExtraCallbacksOfAFit) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1, 0.01, {flat_cos()}).fit_one_cycle(1, 0.01);
  const auto& calls = learn.recorder().calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].call, "fit(1, 0.01, {ParamScheduler})");
  EXPECT_EQ(calls[1].call, "fit_one_cycle(1, 0.01)");
}

TEST(Report, ShowsTheSeedAndTheSameTimesAsTheTerminal) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.seed = 918'273, .sink = sink});
  // An epoch of 75 seconds, set before the table's row is printed.
  learn.add<LambdaCallback>(
      {.on_epoch_end =
           [](Learner& l) {
             StateDict state = l.recorder().state_dict();
             state["seconds"] = torch::full({1}, 75, torch::kDouble);
             l.recorder().load_state_dict(state);
           },
       .order = callback_order::kRecorder + 1});
  learn.fit(1);
  EXPECT_TRUE(sink->lines.back().ends_with("  01:15")) << sink->lines.back();
  const std::string html = make_report(learn).to_string();
  expect_words(
      html,
      {"918273", "<dt>seed</dt>", "learning rate of a fit without one"});
  int64_t times = 0;  // the total, the call and the epoch
  for (size_t at = 0; (at = html.find("01:15", at)) != std::string::npos;
       ++at) {
    ++times;
  }
  EXPECT_EQ(times, 3);
}

TEST(Report, PlotsADivergedRun) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.loss = Loss([](torch::Tensor pred, torch::Tensor) {
               return pred.sum() * NAN;
             })}));
  learn.fit(2);
  const std::string html = make_report(learn).to_string();
  EXPECT_EQ(html.find("nan L"), std::string::npos);
  EXPECT_EQ(html.find("Mnan"), std::string::npos);
}

TEST(Report, StaysSmallHoweverLongTheRun) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1);
  StateDict state = learn.recorder().state_dict();
  const torch::Tensor many = torch::rand({300'000}, torch::kDouble);
  for (const char* name :
       {"losses", "smooth_losses", "lrs", "momentums", "loss_scales"}) {
    state[name] = many;
  }
  const torch::Tensor epochs = torch::arange(3000, torch::kDouble);
  for (const char* name :
       {"epochs", "train_loss", "valid_loss", "seconds", "epoch_ends"}) {
    state[name] = epochs;
  }
  learn.recorder().load_state_dict(state);
  const std::string html = make_report(learn).to_string();
  EXPECT_LT(html.size(), 2'000'000u);
  expect_words(html, {"The last 200 of 3000 epochs"});
}

TEST(HtmlReport, IsUpToDateAfterEachEpochAndFit) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  std::string during;
  learn.add<HtmlReport>({.file = "out/run.html"})
      .add<LambdaCallback>(
          {.on_epoch_end =
               [&](Learner& l) {
                 if (l.state().epoch == 1) {
                   during = text_of(temp / "out" / "run.html");
                 }
               },
           .order = callback_order::kLast});
  learn.fit(2);
  expect_words(during, {"training, epoch 2 of 2"});
  expect_words(text_of(temp / "out" / "run.html"), {"completed"});
  learn.fit(1);
  expect_words(text_of(temp / "out" / "run.html"), {"<dd>3</dd>"});
}

TEST(HtmlReport, HasTheConfiguredTitleAndSections) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  learn.add<HtmlReport>(
      {.report = {.title = "Points", .sections = {[](HtmlPage& page) {
                                       page.heading("Of the program");
                                     }}}});
  learn.fit(1);
  expect_words(text_of(temp / "report.html"), {"Points", "Of the program"});
}

TEST(HtmlReport, ShowsThatAFitFailed) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  learn.add<HtmlReport>().add<LambdaCallback>(
      {.on_step = [](Learner&) { throw std::runtime_error("stop"); }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  expect_words(text_of(temp / "report.html"), {"failed with an error"});
}

TEST(HtmlReport, WarnsOnceAboutAWriteErrorAndTrainingContinues) {
  const TempFolder temp;
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = temp.path(), .sink = sink});
  learn.add<HtmlReport>({.file = "out/run.html"})
      .add<LambdaCallback>({.on_epoch_begin = [&](Learner&) {
        std::filesystem::remove_all(temp / "out");
        write_file(temp / "out", "in the way");
      }});
  learn.fit(3);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("Training continues"), std::string::npos);
  EXPECT_EQ(learn.recorder().epochs().size(), 3u);
  EXPECT_THROW(learn.fit(1), IoError);  // detected before the fit begins
}

TEST(HtmlReport, RejectsAFolderThatCannotBeWrittenBeforeTraining) {
  const TempFolder temp;
  write_file(temp / "out", "in the way");
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = temp.path(), .sink = sink});
  learn.add<HtmlReport>({.file = "out/run.html"});
  expect_error<IoError>([&] { learn.fit(1); }, {(temp / "out").string()});
  EXPECT_TRUE(sink->warnings.empty());
  EXPECT_TRUE(learn.recorder().losses().empty());
}

TEST(HtmlReport, LetsAFitStartOnAFullDisk) {
  const TempFolder temp;
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = temp.path(), .sink = sink});
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 100;
  learn.add<HtmlReport>().add<LambdaCallback>(
      {.on_epoch_begin = [&](Learner& l) {
        if (l.state().epoch == 2) ::setrlimit(RLIMIT_FSIZE, &before);
      }});
  ::setrlimit(RLIMIT_FSIZE, &small);
  learn.fit(3);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("Training continues"), std::string::npos);
  expect_words(text_of(temp / "report.html"), {"completed"});
}

TEST(HtmlReport, AddsNoWarningToTheErrorThatEndedTheFit) {
  const TempFolder temp;
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = temp.path(), .sink = sink});
  learn.add<HtmlReport>({.file = "out/run.html"})
      .add<LambdaCallback>({.on_step = [&](Learner&) {
        std::filesystem::remove_all(temp / "out");
        write_file(temp / "out", "in the way");
        throw std::runtime_error("stop");
      }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_TRUE(sink->warnings.empty());
}

TEST(HtmlReport, WritesNothingDuringADryRun) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  dry_run(learn.add<HtmlReport>());
  EXPECT_EQ(temp.entries(), 0);
}

TEST(Report, ShowsThatATrialWasPruned) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1);
  learn.state().result = FitResult::pruned;
  expect_words(make_report(learn).to_string(), {"pruned: worse than other"});
}

TEST(Report, ShowsTheOptionsOfCallbacks) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  learn.to_bf16({.clip = 0.5, .keep_fp32 = {"3"}})
      .add<Ema>({.decay = 0.9})
      .add<EarlyStopping>({.patience = 4})
      .add<SaveCheckpoint>({.folder = "run", .every = std::chrono::seconds(30)})
      .add<JsonLinesLogger>({.every = 5});
  expect_words(
      make_report(learn).to_string(),
      {"Options of callbacks",
       "decay = 0.9, warm_up = true, at_end = true",
       "monitor = &quot;valid_loss&quot;, min_delta = 0",
       "patience = 4",
       "folder = &quot;run&quot;",
       "every = 30 s",
       "file = &quot;history.jsonl&quot;, append = false, every = 5",
       "dtype = BFloat16",
       "clip = 0.5",
       "keep_fp32 = {&quot;3&quot;}"});
}

// A custom class, of which only the name is known.
struct NoOptions : Callback {
  void on_epoch_end(Learner&) override {}
};

TEST(Report, OmitsOptionsIfThereAreNone) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<NoOptions>();
  const std::string html = make_report(learn).to_string();
  EXPECT_EQ(html.find("Options of callbacks"), std::string::npos);
  EXPECT_NE(html.find("NoOptions"), std::string::npos);
}

TEST(Report, MarksTheEpochThatSaveModelLoaded) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  learn.add(scripted_valid_loss({5, 2, 3, 4, /* second fit */ 9, 8, 10}));
  learn.add<SaveModel>();
  std::string html = make_report(learn.fit(4, 0.1)).to_string();
  EXPECT_EQ(learn.recorder().calls().back().loaded_epoch, 1);
  const size_t row = html.find("<td>loaded by SaveModel</td>");
  ASSERT_NE(row, std::string::npos);
  EXPECT_EQ(html.find("<td>loaded by SaveModel</td>", row + 1), html.npos);
  EXPECT_NE(
      html.substr(html.rfind("<tr>", row), 40).find("number\">1</td>"),
      std::string::npos);
  learn.fit(3, 0.1);
  EXPECT_EQ(learn.recorder().calls().back().loaded_epoch, 5);
}

TEST(Report, ShowsValuesThatCallbacksLogPerBatch) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>(
      {.on_step = [](Learner& l) { l.log("gradient <norm>", 1); }});
  expect_words(
      make_report(learn.fit(1)).to_string(),
      {"aria-label=\"gradient &lt;norm&gt;\""});
}

}  // namespace
}  // namespace tern::report_test
