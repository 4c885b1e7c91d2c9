#include "tern/callbacks/logging/loggers.h"

#include <cmath>
#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/logging/log_file.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
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

// A resumed run continues its logs: one row for each epoch and one line for
// each batch, none repeated.
TEST(Loggers, ContinueTheirFilesInAResumedRun) {
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

// 24 steps, 8 per epoch, run by processes that die at step 20 and by one that
// does not.
struct KilledTraining {
  // Saves its checkpoint at the given step, in a callback with the given order.
  KilledTraining(int order, int64_t step) : order(order), step(step) {}

  std::unique_ptr<Learner> process(bool with_loggers = true) const {
    auto learn = learner(folder / "", sink);
    if (with_loggers) {
      learn->add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
    }
    return learn;
  }

  void die(Learner& learn, bool saves = true) const {
    const auto save = [this, saves](Learner& l) {
      const TrainState& state = l.state();
      if (!saves || state.iteration != step) return;
      if (!has_checkpoint(folder / "run")) l.save_checkpoint(folder / "run");
    };
    const bool in_epoch = step % 8 != 0;
    LambdaCallbackOptions options{.order = order};
    (in_epoch ? options.on_batch_end : options.on_epoch_end) = save;
    learn.add(std::make_shared<LambdaCallback>(options));
    learn.add(std::make_shared<LambdaCallback>(
        LambdaCallbackOptions{.on_step = [](Learner& l) {
          if (l.state().iteration == 20) throw std::runtime_error("killed");
        }}));
    EXPECT_THROW(learn.fit(3), std::runtime_error);
  }

  void expect_each_once() const {
    const auto rows = lines_of(folder / "history.csv");
    ASSERT_EQ(rows.size(), 1u + 3u);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(rows[epoch + 1].find(fmt::format("{},", epoch)), 0u);
    }
    const auto lines = lines_of(folder / "history.jsonl");
    EXPECT_EQ(count(lines, "\"event\":\"epoch\""), 3u);
    EXPECT_EQ(count(lines, "\"event\":\"batch\""), 24u);
    for (int i = 0; i < 24; ++i) {
      EXPECT_EQ(count(lines, fmt::format("\"iteration\":{},\"loss", i)), 1u)
          << i;
    }
    EXPECT_TRUE(sink->warnings.empty());
  }

  TempFolder folder;
  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  int order;
  int64_t step;
};

TEST(Loggers, WriteEachEpochAndBatchOnceWhereverTheCheckpointWasSaved) {
  // Saved before and after the loggers' callbacks, within an epoch and at its
  // end.
  for (const int order : {callback_order::kProgress, callback_order::kLast}) {
    for (const int64_t step : {3, 8, 11, 16}) {
      SCOPED_TRACE(fmt::format("order {}, step {}", order, step));
      const KilledTraining training(order, step);
      training.die(*training.process());
      // Dies again, without saving a newer checkpoint.
      const auto second = training.process();
      second->resume(training.folder / "run");
      training.die(*second, /*saves=*/false);
      training.process()->resume(training.folder / "run").fit(3);
      training.expect_each_once();
    }
  }
}

TEST(Loggers, KeepEarlierRecordsWhenTheCheckpointIsBetweenTwoFits) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = learner(folder / "");
    learn->add<CSVLogger>().add<JsonLinesLogger>();
    return learn;
  };
  const auto first = make();
  first->fit(1).save_checkpoint(folder / "run");
  first->fit(2);
  make()->resume(folder / "run").fit(1).fit(2);
  EXPECT_EQ(lines_of(folder / "history.csv").size(), 1u + 3u);
  const auto lines = lines_of(folder / "history.jsonl");
  EXPECT_EQ(count(lines, "\"event\":\"epoch\""), 3u);
  EXPECT_EQ(count(lines, "\"event\":\"fit\""), 2u);
  EXPECT_EQ(count(lines, "\"event\":\"end\""), 2u);
}

TEST(CSVLogger, HasTheHeadersOfAnUninterruptedRun) {
  const auto rows = [](bool resumes) {
    const TempFolder folder;
    const auto make = [&] {
      auto learn = learner(folder / "");
      learn->add<CSVLogger>().add<LambdaCallback>(
          {.on_epoch_end =
               [](Learner& l) {
                 // Logged after the row of this epoch is written.
                 if (l.recorder().epochs().size() == 1) l.log("late", 1);
               },
           .order = callback_order::kLast});
      return learn;
    };
    auto learn = make();
    learn->fit(1).save_checkpoint("run");
    if (resumes) {
      learn = make();
      learn->resume("run").fit(1);
    }
    learn->fit(1);
    std::vector<std::string> lines = lines_of(folder / "history.csv");
    for (std::string& line : lines) line = line.substr(0, line.rfind(','));
    return lines;
  };
  EXPECT_EQ(rows(/*resumes=*/true), rows(/*resumes=*/false));
}

TEST(Loggers, AppendToAFileThatWasTruncatedReplacedOrRemoved) {
  const auto rows_after = [](const auto& meddle) {
    const KilledTraining training(callback_order::kLast, 8);
    training.die(*training.process());
    meddle(training.folder / "history.csv");
    training.process()->resume(training.folder / "run").fit(3);
    EXPECT_TRUE(training.sink->warnings.empty());
    return lines_of(training.folder / "history.csv");
  };
  const std::string names = "epoch,train_loss,valid_loss,accuracy,seconds";
  const auto shorter = rows_after([&](const std::filesystem::path& file) {
    std::filesystem::resize_file(file, names.size() + 1);
  });
  ASSERT_EQ(shorter.size(), 3u);
  EXPECT_EQ(shorter[1].substr(0, 2), "1,");
  const std::string text(1000, 'x');
  const auto another = rows_after([&](const std::filesystem::path& file) {
    std::ofstream(file) << names << '\n' << text << '\n';
  });
  ASSERT_EQ(another.size(), 4u);
  EXPECT_EQ(another[1], text);
  EXPECT_EQ(another[3].substr(0, 2), "2,");
  const auto gone = rows_after(
      [](const std::filesystem::path& file) { std::filesystem::remove(file); });
  ASSERT_EQ(gone.size(), 3u);
  EXPECT_EQ(gone[0], names);
  EXPECT_EQ(gone[2].substr(0, 2), "2,");
}

// As in checkpoints written before loggers had state.
TEST(Loggers, AppendToTheirFilesIfTheCheckpointHasNoStateForThem) {
  const KilledTraining training(callback_order::kLast, 8);
  training.die(*training.process());
  std::vector<std::string> problems;
  Checkpoint old = read_checkpoint(training.folder / "run", problems);
  StateDict without_logs;
  for (const auto& entry : old.training) {
    if (entry.key().find("Logger") != std::string::npos) continue;
    without_logs.insert(entry.key(), entry.value());
  }
  ASSERT_LT(without_logs.size(), old.training.size());
  old.training = without_logs;
  write_checkpoint(training.folder / "old", old);
  training.process()->resume(training.folder / "old").fit(3);
  const auto rows = lines_of(training.folder / "history.csv");
  ASSERT_EQ(rows.size(), 1u + 2u + 2u);
  EXPECT_EQ(rows[4].substr(0, 2), "2,");
}

TEST(Loggers, MayDifferInAResumedRun) {
  const KilledTraining with(callback_order::kLast, 8);
  with.die(*with.process());
  with.process(/*with_loggers=*/false)->resume(with.folder / "run").fit(3);
  EXPECT_EQ(lines_of(with.folder / "history.csv").size(), 1u + 2u);
  const KilledTraining without(callback_order::kLast, 8);
  without.die(*without.process(/*with_loggers=*/false));
  without.process()->resume(without.folder / "run").fit(3);
  EXPECT_EQ(lines_of(without.folder / "history.csv").size(), 1u + 2u);
}

TEST(Loggers, StartWhereACallbackAddsThem) {
  const TempFolder folder;
  for (const bool in_epoch : {false, true}) {
    const auto learn = learner(folder / "");
    const auto add = [&](Learner& l) {
      if (l.state().epoch != 1 || l.find<CSVLogger>()) return;
      l.add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
    };
    LambdaCallbackOptions options;
    (in_epoch ? options.on_step : options.on_epoch_end) = add;
    learn->add(std::make_shared<LambdaCallback>(options)).fit(3);
    const auto rows = lines_of(folder / "history.csv");
    ASSERT_EQ(rows.size(), 1u + 2u);
    EXPECT_EQ(rows[1].substr(0, 2), "1,");
    const auto lines = lines_of(folder / "history.jsonl");
    EXPECT_EQ(count(lines, "\"event\":\"fit\""), 1u);
    EXPECT_EQ(count(lines, "\"event\":\"batch\""), in_epoch ? 15u : 8u);
    EXPECT_EQ(count(lines, "\"event\":\"epoch\""), 2u);
    EXPECT_EQ(count(lines, "\"event\":\"end\""), 1u);
  }
}

TEST(Loggers, NameTheFileThatTheyCannotOpenDuringAFit) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  for (const bool json : {false, true}) {
    const auto learn = learner(folder / "file");
    learn->add<LambdaCallback>({.on_epoch_begin = [&](Learner& l) {
      if (json) {
        l.add<JsonLinesLogger>();
      } else {
        l.add<CSVLogger>();
      }
    }});
    expect_error<IoError>(
        [&] { learn->fit(1); },
        {(folder / "file").string(), "cannot create"});
  }
}

TEST(CSVLogger, WritesARowForEachEpochOfAllFits) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<CSVLogger>().fit(2).fit(1);
  const auto lines = lines_of(folder / "history.csv");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "epoch,train_loss,valid_loss,accuracy,seconds");
  const EpochRecord& last = learn->recorder().epochs()[2];
  EXPECT_EQ(
      lines[3].substr(0, lines[3].rfind(',')),
      fmt::format(
          "2,{},{},{}",
          last.train_loss,
          last.valid_loss,
          last.metrics[0].value));
}

TEST(CSVLogger, RejectsASecondLoggerForTheSameFile) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<CSVLogger>("a.csv").add<CSVLogger>("b.csv");
  expect_error<c10::ValueError>(
      [&] { learn.add<CSVLogger>("./a.csv"); },
      {"two CSVLogger would both write ./a.csv"});
  learn.add<JsonLinesLogger>();
  expect_error<c10::ValueError>(
      [&] { learn.add<JsonLinesLogger>(); },
      {"two JsonLinesLogger would both write history.jsonl"});
}

TEST(CSVLogger, LeavesUnknownCellsEmpty) {
  const TempFolder folder;
  learner(folder / "", silent(), /*valid=*/0)
      ->add<CSVLogger>("x/log.csv")
      .fit(1);
  EXPECT_NE(lines_of(folder / "x/log.csv")[1].find(",,,"), std::string::npos);
}

TEST(CSVLogger, OverwritesItsFileUnlessAppendIsSet) {
  const TempFolder folder;
  for (const bool append : {false, false, true}) {
    learner(folder / "")->add<CSVLogger>({.append = append}).fit(1);
  }
  EXPECT_EQ(lines_of(folder / "history.csv").size(), 3u);
  // Different columns: the header is written again.
  Learner other(point_data(), point_net(), quiet({.path = folder / ""}));
  other.add<CSVLogger>({.append = true}).fit(1);
  const auto lines = lines_of(folder / "history.csv");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3], "epoch,train_loss,valid_loss,seconds");
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

TEST(JsonLinesLogger, AppendsOnRequest) {
  const TempFolder folder;
  for (const bool append : {false, true}) {
    learner(folder / "")->add<JsonLinesLogger>({.append = append}).fit(1);
  }
  EXPECT_EQ(lines_of(folder / "history.jsonl").size(), 6u);
}

TEST(JsonLinesLogger, RecordsThatAFitFailed) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<JsonLinesLogger>().add<LambdaCallback>(
      {.on_step = [](Learner&) { throw std::runtime_error("stop"); }});
  EXPECT_THROW(learn->fit(1), std::runtime_error);
  EXPECT_EQ(count(lines_of(folder / "history.jsonl"), "\"failed\":true"), 1u);
}

TEST(JsonText, IsAlwaysValidJson) {
  EXPECT_EQ(json_quoted("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(json_quoted("\xc3\xa9\xe2\x82\xac"), "\"\xc3\xa9\xe2\x82\xac\"");
  EXPECT_EQ(
      json_quoted("\xff"
                  "a\xc0\xaf"),
      "\"\ufffda\ufffd\ufffd\"");
  EXPECT_EQ(json_quoted("\xe2\x82"), "\"\ufffd\"");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(NAN), "null");
  EXPECT_EQ(json_number(-INFINITY), "null");
}

TEST(Loggers, WriteNothingInADryRun) {
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

TEST(Loggers, LetTrainingContinueWhenTheDiskIsFull) {
  const TempFolder folder;
  const auto sink = std::make_shared<MemorySink>();
  const auto learn = learner("/dev", sink);
  learn->add<CSVLogger>("full").add<JsonLinesLogger>({.file = "full"});
  learn->fit(2).save_checkpoint(folder / "run");
  learn->fit(1);
  EXPECT_EQ(learn->recorder().epochs().size(), 3u);
  ASSERT_EQ(sink->warnings.size(), 2u);
  EXPECT_NE(sink->warnings[0].find("/dev/full"), std::string::npos)
      << sink->warnings[0];
  EXPECT_EQ(count(sink->warnings, "Training continues"), 2u);
}

TEST(LogFile, HoldsOnlyWholeRecordsAndContinuesWhenThereIsSpaceAgain) {
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

TEST(LogFile, RewindsOnlyToAPositionInTheSameFile) {
  const TempFolder folder;
  LogFile file("Test", folder / "log", false, silent());
  EXPECT_FALSE(file.place().contains("size"));
  EXPECT_FALSE(file.go_back_to(file.place()));
  file.write("first\n");
  const StateDict place = file.place();
  file.write("second\n");
  LogFile other("Test", folder / "other", false, silent());
  other.write("other\nlonger\n");
  EXPECT_FALSE(other.go_back_to(place));
  EXPECT_EQ(lines_of(folder / "other").size(), 2u);
  EXPECT_TRUE(file.go_back_to(place));
  file.write("third\n");
  EXPECT_EQ(
      lines_of(folder / "log"),
      (std::vector<std::string>{"first", "third"}));
}

TEST(Loggers, RejectAFolderThatCannotBeWritten) {
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

TEST(LogFile, RejectsAPipe) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<DataError>(
      [&] { LogFile file("Test", pipe, false, silent()); },
      {"pipe"});
}

}  // namespace
}  // namespace tern::loggers_test
