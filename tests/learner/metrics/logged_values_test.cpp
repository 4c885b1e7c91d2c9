#include <fstream>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/logging/tensorboard.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/report.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::logged_values_test {
namespace {

using namespace testing_support;  // NOLINT

// Logs the batch number in training, the batch size in validation, and the
// epoch number.
std::shared_ptr<Callback> logs_everywhere() {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_step =
          [](Learner& l) { l.log("batch", torch::tensor(l.state().batch)); },
      .on_batch_end =
          [](Learner& l) {
            if (l.state().training) return;
            l.log("size", static_cast<double>(l.state().batch_data.size()));
          },
      .on_epoch_end =
          [](Learner& l) { l.log("epochs", l.state().epoch + 1.0); }});
}

TEST(LoggedValues, AreMeansOfTheirEpochInTheOrderOfMetrics) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.add(logs_everywhere()).fit(2);
  const auto& epochs = learn.recorder().epochs();
  ASSERT_EQ(epochs.size(), 2u);
  const std::vector<MetricValue>& last = epochs[1].metrics;
  ASSERT_EQ(last.size(), 4u);
  EXPECT_EQ(last[0].name, "accuracy");
  EXPECT_EQ(last[1].name, "size");
  // 100 samples in batches of 32; each sample counts its batch's size.
  EXPECT_NEAR(last[1].value, (96 * 32 + 4 * 4) / 100., 1e-12);
  EXPECT_EQ(last[2].name, "batch");
  EXPECT_EQ(last[2].value, 3.5);  // the mean of 0 to 7
  EXPECT_EQ(last[3].name, "epochs");
  EXPECT_EQ(last[3].value, 2);
  EXPECT_EQ(epochs[0].metrics[3].value, 1);
  EXPECT_EQ(learn.state()["batch"], 3.5);

  const auto& logged = learn.recorder().logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_EQ(logged[0].batches.size(), 16u);
  EXPECT_EQ(logged[0].batches[9], 9);
  EXPECT_EQ(logged[0].values[9], 1);
  EXPECT_EQ(learn.recorder().logged_in(10).at(0).value, 2);
}

TEST(LoggedValues, BelongToTheirBatchBeforeAndAfterTheRecorderRuns) {
  Learner learn(point_data(), point_net(), quiet());
  for (const int order : {callback_order::kFirst, callback_order::kLast}) {
    learn.add<LambdaCallback>(
        {.on_batch_end =
             [order](Learner& l) {
               if (!l.state().training) return;
               l.log(fmt::format("by {}", order), l.state().iteration - 1.0);
             },
         .order = order});
  }
  learn.fit(2);
  for (const LoggedValues& series : learn.recorder().logged()) {
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(series.batches.at(i), i) << series.name;
      EXPECT_EQ(series.values.at(i), i) << series.name;
    }
  }
}

TEST(LoggedValues, AreReturnedByValidate) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add(logs_everywhere());
  EXPECT_NEAR(learn.validate()["size"], 30.88, 1e-12);
  learn.get_preds();  // does not include them
  EXPECT_TRUE(learn.recorder().logged().empty());
}

TEST(LoggedValues, OfTrainingAndValidationBatchesAreSeparate) {
  Learner learn(point_data(), point_net(), quiet());
  learn
      .add<LambdaCallback>(
          {.on_batch_end =
               [](Learner& l) { l.log("x", l.state().training ? 1 : 2); }})
      .fit(1);
  EXPECT_EQ(learn.state()["x"], 2);
  EXPECT_EQ(learn.state()["train_x"], 1);
}

TEST(LoggedValues, ContinueExactlyInTheMiddleOfAnEpoch) {
  const TempFolder folder;
  const auto learner = [] {
    auto learn = std::make_unique<Learner>(point_data(), point_net(), quiet());
    learn->add<LambdaCallback>(
        {.on_step = [](Learner& l) { l.log("loss_now", l.state().loss); }});
    return learn;
  };
  const auto whole = learner();
  whole->add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
    if (l.state().training && l.state().iteration == 11) {
      l.save_checkpoint(folder / "run");
    }
  }});
  whole->fit(2);
  const auto resumed = learner();
  resumed->resume(folder / "run").fit(2);
  EXPECT_EQ(resumed->state()["loss_now"], whole->state()["loss_now"]);
  EXPECT_EQ(
      resumed->recorder().logged().at(0).values,
      whole->recorder().logged().at(0).values);
  EXPECT_EQ(resumed->recorder().calls().at(0).call, "fit(2, 0.003)");
}

TEST(LoggedValues, AreRejectedOutsideAnEpochAndWithReservedNames) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  expect_error<c10::ValueError>(
      [&] { learn.log("x", 1); },
      {"[Learner::log] \"x\" was logged outside an epoch"});
  expect_error<c10::ValueError>(
      [&] { learn.log("accuracy", 1); },
      {"\"accuracy\", which is the name of a metric or column"});
  for (const char* column :
       {"epoch", "train_loss", "valid_loss", "time", "seconds", "losses"}) {
    expect_error<c10::ValueError>(
        [&] { learn.log(column, 1); },
        {column, "which is the name of a metric or column"});
  }
  learn.add<LambdaCallback>(
      {.on_batch_end = [](Learner& l) { l.log("loss", 1); }});
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"\"loss\" was logged in training and in validation batches"});
  expect_error<c10::ValueError>(
      [&] { learn.log("x", torch::zeros({2})); },
      {"\"x\" is Float [2]; expected a number or a 0-dim tensor"});
}

TEST(LoggedValues, HaveTheSameNameInCsvAndJson) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder / ""}));
  learn.add(logs_everywhere())
      .add<CSVLogger>()
      .add<JsonLinesLogger>({.every = 4})
      .fit(1);
  const auto text_of = [&](const char* name) {
    std::ifstream file(folder / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string csv = text_of("history.csv");
  EXPECT_TRUE(csv.starts_with(
      "epoch,train_loss,valid_loss,size,batch,epochs,seconds\n"))
      << csv;
  EXPECT_NE(csv.find(",30.88,3.5,1,"), std::string::npos) << csv;
  const std::string json = text_of("history.jsonl");
  EXPECT_NE(json.find("\"logged\":{\"batch\":4}"), std::string::npos) << json;
  EXPECT_NE(
      json.find("\"metrics\":{\"size\":30.88,\"batch\":3.5,\"epochs\":1}"),
      std::string::npos)
      << json;
}

// Users of Lightning log "loss".
TEST(LoggedValues, CanHaveTheNameOfABuiltInBatchValue) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder / ""}));
  learn
      .add<LambdaCallback>(
          {.on_step =
               [](Learner& l) {
                 l.log("loss", 7);
                 l.log("lr", 8);
               }})
      .add<CSVLogger>()
      .add<JsonLinesLogger>({.every = 1})
      .add<TensorBoard>()
      .fit(1);
  const auto text_of = [&](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string csv = text_of(folder / "history.csv");
  EXPECT_TRUE(csv.starts_with("epoch,train_loss,valid_loss,loss,lr,seconds\n"))
      << csv;
  EXPECT_NE(csv.find(",7,8,"), std::string::npos) << csv;
  const std::string json = text_of(folder / "history.jsonl");
  EXPECT_NE(json.find("\"logged\":{\"loss\":7,\"lr\":8}"), std::string::npos)
      << json;
  const std::string events =
      text_of(learn.find<TensorBoard>()->writer().file());
  for (const char* tag :
       {"batch/loss", "logged/loss", "epoch/loss", "logged/lr", "epoch/lr"}) {
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  }
}

TEST(LoggedValues, AppearInTheReportAndInTheMetricPlot) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add(logs_everywhere()).fit(2);
  const std::string html = make_report(learn).to_string();
  EXPECT_NE(html.find(">batch</th>"), std::string::npos);
  EXPECT_NE(html.find("30.880000"), std::string::npos);
  const Plot plot = learn.recorder().metric_plot();
  ASSERT_EQ(plot.curves.size(), 3u);
  EXPECT_EQ(plot.curves[1].label, "batch");
  EXPECT_EQ(plot.curves[1].y, std::vector<double>(2, 3.5));
}

}  // namespace
}  // namespace tern::logged_values_test
