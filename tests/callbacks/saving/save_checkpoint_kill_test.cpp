// A training run that is killed repeatedly at random moments loses no completed
// save and ends like an uninterrupted run. TERN_KILLS sets the number of kills
// per program.

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

constexpr int64_t kEpochs = 40;

// File for the weights after the last fit; its checkpoints do not contain Swa's
// averages.
fs::path end_of(const fs::path& run) {
  return run.string() + "_end.safetensors";
}

fs::path logs_of(const fs::path& run) {
  return run.string() + "_logs";
}

// Returns the first number of each line that starts with `begin`.
std::vector<int64_t> numbers(const fs::path& file, const std::string& begin) {
  std::ifstream stream(file);
  std::vector<int64_t> result;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(begin)) continue;
    result.push_back(std::strtoll(line.c_str() + begin.size(), nullptr, 10));
  }
  return result;
}

// Expects each epoch and each batch once, in order.
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

struct Program {
  std::string name;
  void (*train)(Learner&);
  void (*set_up)(Learner&);
  bool is_one_fit = false;
};

std::unique_ptr<Learner> make(const Program& program, const fs::path& folder) {
  at::set_num_threads(1);
  auto learn = std::make_unique<Learner>(
      point_data(),
      point_net(),
      quiet({.path = logs_of(folder)}));
  program.set_up(*learn);
  return learn;
}

// Writes the step of each completed save to `report`.
void train(const Program& program, const fs::path& folder, int report) {
  const auto learn = make(program, folder);
  learn->add<CSVLogger>().add<JsonLinesLogger>({.every = 1});
  if (has_checkpoint(folder)) learn->resume(folder);
  const auto saver = std::make_shared<SaveCheckpoint>(SaveCheckpointOptions{
      .folder = folder,
      .every_steps = 3,
      .durable = false});
  learn->add(saver);
  learn->add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end =
          [&](Learner& l) {
            if (!l.state().training || l.state().iteration % 3 != 0) return;
            saver->wait(l);
            const int64_t step = l.state().iteration;
            if (::write(report, &step, sizeof step) != sizeof step) ::_exit(3);
          },
      .order = callback_order::kSaveCheckpoint + 1}));
  program.train(*learn);
  save_safetensors(end_of(folder), learn->state_dict());
}

void expect_same_weights(const fs::path& actual, const fs::path& expected) {
  const StateDict a = load_weights(actual), e = load_weights(expected);
  ASSERT_EQ(a.keys(), e.keys());
  for (const auto& entry : e) {
    EXPECT_TRUE(torch::equal(a[entry.key()], entry.value())) << entry.key();
  }
}

// Only child processes use threads, because forking a process that has trained
// would leave its child without the threads.
template <class Act>
pid_t in_child(const Act& act) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  act();
  ::_exit(0);
}

int status_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// Expects only complete checkpoints, and no leftovers of one that a killed
// process was removing or replacing.
void expect_whole_checkpoints(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    EXPECT_TRUE(fs::exists(entry.path() / "MANIFEST")) << name;
    EXPECT_EQ(name.find(".before"), std::string::npos) << name;
  }
}

class Kill : public testing::TestWithParam<Program> {};

TEST_P(Kill, LosesNoCompletedSave) {
  const Program& program = GetParam();
  const char* const text = std::getenv("TERN_KILLS");
  const int kills = text ? std::atoi(text) : program.is_one_fit ? 100 : 25;
  const TempFolder temp;
  const fs::path expected = end_of(temp / "whole");
  ASSERT_EQ(
      status_of(in_child([&] {
        const auto whole = make(program, temp / "whole");
        program.train(*whole);
        save_safetensors(expected, whole->state_dict());
      })),
      0);
  std::mt19937 random(std::random_device{}());
  int killed = 0, finished = 0;
  fs::path folder = temp / "run_0";
  int64_t acknowledged = 0;
  while (killed < kills) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = in_child([&] { train(program, folder, pipe[1]); });
    ::close(pipe[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    ::kill(child, SIGKILL);
    const int status = status_of(child);
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
    expect_same_weights(end_of(folder), expected);
    expect_whole_checkpoints(folder);
    if (program.is_one_fit) expect_whole_logs(logs_of(folder));
    folder = temp / ("run_" + std::to_string(++finished));
    acknowledged = 0;
  }

  // Finally, completes the last run.
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ASSERT_EQ(status_of(in_child([&] { train(program, folder, nowhere); })), 0);
  ::close(nowhere);
  if (program.is_one_fit) expect_whole_logs(logs_of(folder));
  expect_same_weights(end_of(folder), expected);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Kill,
    testing::Values(
        Program{
            "one_fit",
            [](Learner& l) { l.fit(kEpochs, 1e-2); },
            [](Learner&) {},
            /*is_one_fit=*/true},
        Program{
            "freeze_and_unfreeze_in_fp16",
            [](Learner& l) {
              l.freeze().fit(10, 1e-2);
              l.unfreeze().fit(10, {1e-3, 1e-2});
            },
            [](Learner& l) {
              l.split({"3"});
              l.to_fp16({.force_fp16 = true});
            }},
        Program{
            "swa_and_a_second_fit",
            [](Learner& l) {
              l.fit(10, 1e-1);
              l.fit(10, 1e-2);
            },
            [](Learner& l) {
              l.add<Swa>({.start = 0.3, .lr = 1e-2, .anneal_epochs = 1});
            }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tern
