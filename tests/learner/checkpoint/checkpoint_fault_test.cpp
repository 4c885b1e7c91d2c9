// Whichever system call of a save fails or kills the program, older checkpoints
// stay intact and every failure is reported. This file replaces the C library's
// calls that the library makes.

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tiny_checkpoint.h"

namespace {

constexpr int kKill = -1;

// Counts calls that change the disk while it is armed. From call `first` on (or
// only at that call), they fail with `error` or kill the program.
struct Fault {
  std::atomic<bool> is_armed = false;
  int calls = 0, first = 0, error = 0;
  int renames = 0, writes_after_a_rename = 0;
  bool once = true;
  bool short_writes = false;

  bool strikes() {
    if (!is_armed) return false;
    const int call = ++calls;
    if (first == 0 || call < first || (once && call > first)) return false;
    if (error == kKill) {
      ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGKILL);
    }
    errno = error;
    return true;
  }
} g_fault;

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  if (g_fault.strikes()) return -1;
  if (g_fault.is_armed && g_fault.renames > 0) ++g_fault.writes_after_a_rename;
  if (g_fault.is_armed && g_fault.short_writes && size > 1) size = 1;
  return ::syscall(SYS_write, fd, data, size);
}

int fsync(int) {
  if (g_fault.strikes()) return -1;
  return 0;  // no test cuts the power
}

int rename(const char* from, const char* to) noexcept {
  if (g_fault.strikes()) return -1;
  ++g_fault.renames;
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (g_fault.strikes()) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int open(const char* path, int flags, ...) {
  if (g_fault.strikes()) return -1;
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // extern "C"

namespace tern {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

constexpr WriteCheckpointOptions kOptions{.keep = 2, .durable = true};

Checkpoint read(const fs::path& folder) {
  std::vector<std::string> problems;
  return read_checkpoint(folder, problems);
}

// The number of calls that a save of step 2 makes when step 1 exists.
int calls_of_a_save() {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(1), kOptions);
  g_fault.calls = g_fault.first = 0;
  g_fault.is_armed = true;
  write_checkpoint(folder.path(), tiny_checkpoint(2), kOptions);
  g_fault.is_armed = false;
  return g_fault.calls;
}

class CheckpointFault : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(CheckpointFault, IsReportedAndHarmsNothingAtAnyCall) {
  const auto [error, once] = GetParam();
  const int calls = calls_of_a_save();
  ASSERT_GT(calls, 20);
  for (int first = 1; first <= calls; ++first) {
    SCOPED_TRACE("at call " + std::to_string(first));
    const TempFolder folder;
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(1),
        {.keep = 2, .durable = false});
    g_fault.calls = 0;
    g_fault.first = first;
    g_fault.error = error;
    g_fault.once = once;
    g_fault.is_armed = true;
    bool was_loud = false;
    try {
      write_checkpoint(folder.path(), tiny_checkpoint(2), kOptions);
    } catch (const IoError& fault) {
      was_loud = true;
      EXPECT_EQ(fault.error(), error);
    }
    g_fault.is_armed = false;
    EXPECT_TRUE(was_loud);
    // The new checkpoint may be complete even though `latest` could not be
    // written.
    const Checkpoint left = read(folder.path());
    expect_equal(left, tiny_checkpoint(left.step));
    // No leftover prevents the next save.
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(2),
        {.keep = 2, .durable = false});
    expect_equal(read(folder.path()), tiny_checkpoint(2));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Errors,
    CheckpointFault,
    testing::Combine(
        testing::Values(ENOSPC, EIO, EROFS, EMFILE),
        testing::Bool()),
    [](const auto& info) {
      return std::string(strerrorname_np(std::get<0>(info.param))) +
             (std::get<1>(info.param) ? "_once" : "_for_ever");
    });

// Runs `save` in a process that is killed at this system call, if `save` makes
// that many. Returns whether it was killed.
bool is_killed_at(int call, const std::function<void()>& save) {
  const pid_t child = ::fork();
  if (child == 0) {
    g_fault.calls = 0;
    g_fault.first = call;
    g_fault.error = kKill;
    g_fault.is_armed = true;
    save();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status);
}

TEST(CheckpointKill, AtAnyCallLeavesTheOldOrTheNewCheckpoint) {
  const int calls = calls_of_a_save();
  for (int first = 1; first <= calls; ++first) {
    SCOPED_TRACE("at call " + std::to_string(first));
    const TempFolder folder;
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(1),
        {.keep = 2, .durable = false});
    EXPECT_TRUE(is_killed_at(first, [&] {
      write_checkpoint(folder.path(), tiny_checkpoint(2), kOptions);
    }));
    const Checkpoint left = read(folder.path());
    EXPECT_TRUE(left.step == 1 || left.step == 2);
    expect_equal(left, tiny_checkpoint(left.step));
    remove_unfinished_checkpoints(folder.path());
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(3),
        {.keep = 1, .durable = false});
    EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(
          name == "step_3" || name == "latest" ||
          name.starts_with(".latest.tmp"))
          << name;
    }
  }
}

// Saves step 2 again, as a run that resumed from step 1 of three.
TEST(CheckpointKill, AtAnyCallLeavesACompleteBranch) {
  const auto of_branch = [](int64_t step, double value) {
    Checkpoint checkpoint = tiny_checkpoint(step);
    for (auto& entry : checkpoint.model) entry.value().fill_(value);
    return checkpoint;
  };
  constexpr WriteCheckpointOptions kSave{
      .keep = 5,
      .durable = true,
      .branch_step = 1};
  bool is_over = false;
  for (int first = 1; !is_over; ++first) {
    SCOPED_TRACE("at call " + std::to_string(first));
    const TempFolder folder;
    for (const int64_t step : {1, 2, 3}) {
      write_checkpoint(
          folder.path(),
          of_branch(step, step == 1 ? 1 : 30),
          {.keep = 5, .durable = false});
    }
    is_over = !is_killed_at(first, [&] {
      write_checkpoint(folder.path(), of_branch(2, 70), kSave);
    });
    // The newest checkpoint of the old branch or of the new one.
    for (int run = 0; run < 2; ++run) {
      const Checkpoint left = read(folder.path());
      EXPECT_EQ(left.model["bias"][0].item<float>(), left.step == 3 ? 30 : 70);
      EXPECT_TRUE(left.step == 3 || left.step == 2) << left.step;
      if (is_over) EXPECT_EQ(left.step, 2);
      remove_unfinished_checkpoints(folder.path());
    }
    // No checkpoint of the old branch is lost.
    int old = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (!fs::exists(entry.path() / "MANIFEST")) continue;
      old += read(entry.path()).model["bias"][0].item<float>() == 30;
    }
    EXPECT_EQ(old, 2);
  }
}

TEST(LearnerSave, OnAFullDiskKeepsThePreviousSave) {
  torch::set_num_threads(1);
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder.path()}));
  learn.fit(1);
  learn.save("model");
  const StateDict before =
      load_weights(folder / "models" / "model.safetensors");
  learn.fit(1);
  g_fault.error = ENOSPC;
  g_fault.once = false;
  for (g_fault.first = 1;; ++g_fault.first) {
    SCOPED_TRACE("at call " + std::to_string(g_fault.first));
    g_fault.calls = g_fault.renames = g_fault.writes_after_a_rename = 0;
    g_fault.is_armed = true;
    bool was_loud = false;
    try {
      learn.save("model");
    } catch (const IoError&) {
      was_loud = true;
    }
    g_fault.is_armed = false;
    if (!was_loud) break;
    // By now both files are on the disk.
    EXPECT_EQ(g_fault.writes_after_a_rename, 0);
    if (g_fault.renames > 0) continue;
    Learner other(point_data(), point_net(), quiet({.path = folder.path()}));
    other.load("model");
    expect_equal(other.state_dict(), before);
    EXPECT_FALSE(other.optimizer().state().empty());
  }
  EXPECT_EQ(g_fault.renames, 2);
  EXPECT_EQ(g_fault.writes_after_a_rename, 0);
  g_fault.first = 0;
}

TEST(CheckpointWrite, ContinuesAfterShortWrites) {
  const TempFolder folder;
  g_fault.calls = g_fault.first = 0;
  g_fault.short_writes = true;
  g_fault.is_armed = true;
  write_checkpoint(
      folder.path(),
      tiny_checkpoint(5),
      {.keep = 2, .durable = false});
  g_fault.is_armed = false;
  g_fault.short_writes = false;
  expect_equal(read(folder.path()), tiny_checkpoint(5));
}

}  // namespace
}  // namespace tern
