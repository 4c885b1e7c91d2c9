// A training that is killed again and again, at random moments, loses nothing
// that it was told is saved, and ends as one that was left alone. TERN_KILLS
// says how often (100).

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/callbacks/save_checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

constexpr int64_t kEpochs = 40;

// Writes the step of each save that returned to `report`.
void train(const fs::path& folder, int report) {
  at::set_num_threads(1);
  Learner learn(point_data(), point_net(), quiet());
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
