// A training that is killed again and again, at random moments, loses nothing
// that it was told is saved, and ends as one that was left alone. TERN_KILLS
// says how often (100).

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

constexpr int64_t kEpochs = 40;

fs::path logs_of(const fs::path& run) {
  return run.string() + "_logs";
}

// The first number of each line that begins so.
std::vector<int64_t> numbers(const fs::path& file, const std::string& begin) {
  std::ifstream stream(file);
  std::vector<int64_t> result;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(begin)) continue;
    result.push_back(std::strtoll(line.c_str() + begin.size(), nullptr, 10));
  }
  return result;
}

// Each epoch and each batch once, in order.
void expect_whole_logs(const fs::path& logs) {
  const auto rows = numbers(logs / "history.csv", "");
  ASSERT_EQ(rows.size(), 1u + kEpochs);
  for (int64_t i = 0; i < kEpochs; ++i) EXPECT_EQ(rows[i + 1], i);
  const auto batches =
      numbers(logs / "history.jsonl", "{\"event\":\"batch\",\"iteration\":");
  ASSERT_EQ(batches.size(), 8u * kEpochs);
  for (int64_t i = 0; i < 8 * kEpochs; ++i) EXPECT_EQ(batches[i], i);
  const auto epochs =
      numbers(logs / "history.jsonl", "{\"event\":\"epoch\",\"epoch\":");
  ASSERT_EQ(epochs.size(), static_cast<size_t>(kEpochs));
  for (int64_t i = 0; i < kEpochs; ++i) EXPECT_EQ(epochs[i], i);
}

// Writes the step of each save that returned to `report`.
void train(const fs::path& folder, int report) {
  at::set_num_threads(1);
  Learner learn(point_data(), point_net(), quiet({.path = logs_of(folder)}));
  learn.add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
  if (has_checkpoint(folder)) learn.resume(folder);
  const auto saver = std::make_shared<SaveCheckpoint>(SaveCheckpointOptions{
      .folder = folder,
      .every_steps = 3,
      .durable = false});
  learn.add(saver);
  learn.add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end =
          [&](Learner& l) {
            if (!l.state().training || l.state().iteration % 3 != 0) return;
            saver->wait(l);
            const int64_t step = l.state().iteration;
            if (::write(report, &step, sizeof step) != sizeof step) ::_exit(3);
          },
      .order = callback_order::kSaveCheckpoint + 1}));
  learn.fit(kEpochs, 1e-2);
}

// The children only are threads' users: forking a program that has trained
// would leave them without theirs.
TEST(Kill, LosesNoSaveThatReturned) {
  const char* const text = std::getenv("TERN_KILLS");
  const int kills = text ? std::atoi(text) : 100;
  const TempFolder temp;
  std::mt19937 random(std::random_device{}());
  int killed = 0, finished = 0;
  fs::path folder = temp / "run_0";
  int64_t acknowledged = 0;
  while (killed < kills) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      train(folder, pipe[1]);
      ::_exit(0);
    }
    ::close(pipe[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    int64_t step = 0;
    while (::read(pipe[0], &step, sizeof step) == sizeof step) {
      acknowledged = std::max(acknowledged, step);
    }
    ::close(pipe[0]);
    if (acknowledged > 0) {
      std::vector<std::string> problems;
      EXPECT_GE(read_checkpoint(folder, problems).step, acknowledged);
      EXPECT_TRUE(problems.empty()) << problems.front();
    }
    if (WIFSIGNALED(status)) {
      ++killed;
      continue;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    expect_whole_logs(logs_of(folder));
    folder = temp / ("run_" + std::to_string(++finished));
    acknowledged = 0;
  }

  // In the end, what is left of the last run is brought to its end.
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    train(folder, nowhere);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  expect_whole_logs(logs_of(folder));
  std::vector<std::string> problems;
  const Checkpoint resumed = read_checkpoint(folder, problems);
  at::set_num_threads(1);
  Learner whole(point_data(), point_net(), quiet());
  whole.fit(kEpochs, 1e-2);
  const StateDict expected = whole.state_dict();
  ASSERT_EQ(resumed.model.keys(), expected.keys());
  for (const auto& entry : expected) {
    EXPECT_TRUE(torch::equal(resumed.model[entry.key()], entry.value()))
        << entry.key();
  }
}

}  // namespace
}  // namespace tern
