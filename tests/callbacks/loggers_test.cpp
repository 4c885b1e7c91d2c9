#include <cmath>
#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/csv_logger.h"
#include "tern/callbacks/json_lines_logger.h"
#include "tern/callbacks/json_text.h"
#include "tern/callbacks/log_file.h"
#include "tern/callbacks/lr_find.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json_reader.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::loggers_test {
namespace {

using namespace testing_support;  // NOLINT

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::unique_ptr<Learner> learner(
    const std::filesystem::path& path,
    Sink sink = silent(),
    int64_t valid = 100) {
  return std::make_unique<Learner>(
      point_data(256, valid),
      point_net(),
      LearnerOptions{
          .metrics = {accuracy()},
          .path = path,
          .sink = std::move(sink)});
}

size_t count(const std::vector<std::string>& lines, const std::string& word) {
  size_t found = 0;
  for (const auto& line : lines) found += line.find(word) != std::string::npos;
  return found;
}

// A training that goes on from a checkpoint goes on with its logs: a row for
// each epoch, a line for each batch, none twice.
TEST(Loggers, GoOnWithTheirFilesWhenATrainingIsResumed) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = learner(folder / "");
    learn->add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
    return learn;
  };
  {
    const auto first = make();
    first->add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
        .on_epoch_end =
            [&](Learner& l) {
              l.save_checkpoint(folder / "run");
              l.state().stop_training = true;
            },
        .order = callback_order::kLast}));
    first->fit(3);
  }
  make()->resume(folder / "run").fit(3);
  EXPECT_EQ(lines_of(folder / "history.csv").size(), 1u + 3u);
  const auto lines = lines_of(folder / "history.jsonl");
  EXPECT_EQ(count(lines, "\"event\":\"epoch\""), 3u);
  for (int iteration = 0; iteration < 24; ++iteration) {
    EXPECT_EQ(
        count(lines, fmt::format("\"batch\",\"iteration\":{},", iteration)),
        1u)
        << iteration;
  }
}

TEST(CSVLogger, WritesARowForEachEpochOfAllFits) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<CSVLogger>().fit(2).fit(1);
  const auto lines = lines_of(folder / "history.csv");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "epoch,train_loss,valid_loss,accuracy,time");
  const EpochRecord& last = learn->recorder().epochs()[2];
  EXPECT_EQ(
      lines[3].substr(0, lines[3].rfind(',')),
      fmt::format(
          "2,{},{},{}",
          last.train_loss,
          last.valid_loss,
          last.metrics[0].value));
}

TEST(CSVLogger, LeavesUnknownCellsEmpty) {
  const TempFolder folder;
  learner(folder / "", silent(), /*valid=*/0)
      ->add<CSVLogger>("x/log.csv")
      .fit(1);
  EXPECT_NE(lines_of(folder / "x/log.csv")[1].find(",,,"), std::string::npos);
}

TEST(CSVLogger, BeginsAnewUnlessItIsToAppend) {
  const TempFolder folder;
  for (const bool append : {false, false, true}) {
    learner(folder / "")->add<CSVLogger>({.append = append}).fit(1);
  }
  EXPECT_EQ(lines_of(folder / "history.csv").size(), 3u);
  // Other columns: names anew.
  Learner other(point_data(), point_net(), quiet({.path = folder / ""}));
  other.add<CSVLogger>({.append = true}).fit(1);
  const auto lines = lines_of(folder / "history.csv");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3], "epoch,train_loss,valid_loss,time");
}

TEST(JsonLinesLogger, WritesFitsEpochsAndBatches) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<JsonLinesLogger>({.every = 4}).fit(2).fit(1);
  const auto lines = lines_of(folder / "history.jsonl");
  EXPECT_EQ(count(lines, "\"event\":\"fit\""), 2u);
  EXPECT_EQ(count(lines, "\"event\":\"batch\""), 6u);
  EXPECT_EQ(count(lines, "\"event\":\"epoch\""), 3u);
  EXPECT_EQ(count(lines, "\"event\":\"end\""), 2u);
  EXPECT_EQ(
      lines[1].substr(0, lines[1].find(",\"smooth")),
      fmt::format(
          "{{\"event\":\"batch\",\"iteration\":0,\"loss\":{}",
          learn->recorder().losses()[0]));
  EXPECT_NE(lines[3].find("\"metrics\":{\"accuracy\":0."), std::string::npos)
      << lines[3];
}

TEST(JsonLinesLogger, AppendsIfAsked) {
  const TempFolder folder;
  for (const bool append : {false, true}) {
    learner(folder / "")->add<JsonLinesLogger>({.append = append}).fit(1);
  }
  EXPECT_EQ(lines_of(folder / "history.jsonl").size(), 6u);
}

TEST(JsonLinesLogger, TellsHowAFitFailed) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<JsonLinesLogger>().add<LambdaCallback>(
      {.on_step = [](Learner&) { throw std::runtime_error("stop"); }});
  EXPECT_THROW(learn->fit(1), std::runtime_error);
  EXPECT_EQ(count(lines_of(folder / "history.jsonl"), "\"failed\":true"), 1u);
}

TEST(JsonText, IsAlwaysJson) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01"), R"("a\"b\\c\u000a\u0001")");
  EXPECT_EQ(json_string("\xc3\xa9\xe2\x82\xac"), "\"\xc3\xa9\xe2\x82\xac\"");
  EXPECT_EQ(
      json_string("\xff"
                  "a\xc0\xaf"),
      R"("\ufffda\ufffd\ufffd")");
  EXPECT_EQ(json_string("\xe2\x82"), R"("\ufffd\ufffd")");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(NAN), "null");
  EXPECT_EQ(json_number(-INFINITY), "null");
}

TEST(Loggers, StayQuietInATrial) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
  learn->lr_find({.num_it = 10});
  EXPECT_EQ(folder.entries(), 0);
  learn->fit(1);
  learn->lr_find({.num_it = 10});
  learn->fit(1);
  EXPECT_EQ(lines_of(folder / "history.csv").size(), 3u);
  EXPECT_EQ(
      count(lines_of(folder / "history.jsonl"), "\"event\":\"batch\""),
      16u);
}

TEST(Loggers, LetTrainingGoOnWhenTheDiskIsFull) {
  const auto sink = std::make_shared<MemorySink>();
  const auto learn = learner("/dev", sink);
  learn->add<CSVLogger>("full").add<JsonLinesLogger>({.file = "full"});
  learn->fit(2).fit(1);
  EXPECT_EQ(learn->recorder().epochs().size(), 3u);
  ASSERT_EQ(sink->warnings.size(), 2u);
  EXPECT_NE(sink->warnings[0].find("/dev/full"), std::string::npos)
      << sink->warnings[0];
  EXPECT_EQ(count(sink->warnings, "Training goes on"), 2u);
}

TEST(LogFile, HoldsWholeRecordsOnlyAndGoesOnWhenThereIsSpaceAgain) {
  const TempFolder folder;
  const auto sink = std::make_shared<MemorySink>();
  LogFile file("Test", folder / "log", false, sink);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 12;
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (const char* record : {"first\n", "second\n", "x\n"}) file.write(record);
  ::setrlimit(RLIMIT_FSIZE, &before);
  file.write("last\n");
  EXPECT_EQ(
      lines_of(folder / "log"),
      (std::vector<std::string>{"first", "x", "last"}));
  EXPECT_EQ(sink->warnings.size(), 1u);
}

TEST(Loggers, RefuseAFolderThatCannotBeWritten) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  for (const bool json : {false, true}) {
    const auto learn = learner(folder / "file");
    if (json) {
      learn->add<JsonLinesLogger>();
    } else {
      learn->add<CSVLogger>();
    }
    expect_error<IoError>([&] { learn->fit(1); }, {"file"});
    EXPECT_TRUE(learn->recorder().losses().empty());
  }
}

TEST(LogFile, RefusesAPipe) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<DataError>(
      [&] { LogFile file("Test", pipe, false, silent()); },
      {"pipe"});
}

}  // namespace
}  // namespace tern::loggers_test
