#include "tern/learner/checkpoint/checkpoint.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/manifest.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny_checkpoint.h"

namespace tern::checkpoint_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

constexpr WriteCheckpointOptions kFast{.keep = 0, .durable = false};

Checkpoint read(const fs::path& folder) {
  std::vector<std::string> problems;
  return read_checkpoint(folder, problems);
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> result;
  for (const fs::path& step : list_checkpoints(folder)) {
    result.push_back(step.filename().string());
  }
  return result;
}

TEST(Checkpoint, IsReadAsItWasWritten) {
  const TempFolder folder;
  write_checkpoint(folder / "run", tiny_checkpoint(7));
  expect_equal(read(folder / "run"), tiny_checkpoint(7));
  expect_equal(read(folder / "run" / "step_7"), tiny_checkpoint(7));
  const auto latest = read_file(folder / "run" / "latest");
  EXPECT_EQ(std::string(latest.begin(), latest.end()), "step_7\n");
}

TEST(Checkpoint, TheNewestIsTheHighestNumberAndNotTheLastName) {
  const TempFolder folder;
  for (const int64_t step : {9, 100, 20}) {
    write_checkpoint(folder.path(), tiny_checkpoint(step), kFast);
  }
  EXPECT_EQ(
      names(folder.path()),
      (std::vector<std::string>{"step_100", "step_20", "step_9"}));
  EXPECT_EQ(read(folder.path()).step, 100);
}

TEST(Checkpoint, KeepsTheRequestedNumberOfOlderOnes) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(1, "other"), kFast);
  for (int64_t step = 2; step <= 6; ++step) {
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(step),
        {.keep = 2, .durable = false});
  }
  // The checkpoint of a different run must not be removed.
  EXPECT_EQ(
      names(folder.path()),
      (std::vector<std::string>{"step_6", "step_5", "step_1"}));
}

TEST(Checkpoint, NeverRemovesALaterOne) {
  const TempFolder folder;
  for (const int64_t step : {8, 9, 10, 2, 3}) {
    write_checkpoint(
        folder.path(),
        tiny_checkpoint(step),
        {.keep = step < 5 ? 1 : 0, .durable = false});
  }
  EXPECT_EQ(
      names(folder.path()),
      (std::vector<std::string>{"step_10", "step_9", "step_8", "step_3"}));
}

TEST(Checkpoint, MovesADamagedCheckpointOfTheSameStepAside) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  write_file(folder / "step_4" / "MANIFEST", std::string_view("nonsense"));
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  expect_equal(read(folder.path()), tiny_checkpoint(4));
  EXPECT_TRUE(fs::exists(folder / "step_4.damaged-1" / "MANIFEST"));
}

// ---- Saving a step again with different content ----

Checkpoint with_weights(Checkpoint checkpoint, double value) {
  for (auto& entry : checkpoint.model) entry.value().fill_(value);
  return checkpoint;
}

std::vector<std::string> all_names(const fs::path& folder) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_")) result.push_back(name);
  }
  std::ranges::sort(result);
  return result;
}

using Names = std::vector<std::string>;

TEST(Checkpoint, HasTheContentOfTheLastSaveAndKeepsThePreviousOne) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  const Checkpoint second = with_weights(tiny_checkpoint(4), 70);
  const auto aside = write_checkpoint(folder.path(), second, kFast);
  EXPECT_EQ(aside, std::vector<fs::path>{folder / "step_4.replaced-1"});
  expect_equal(read(folder.path()), second);
  expect_equal(read(folder / "step_4.replaced-1"), tiny_checkpoint(4));
  EXPECT_EQ(names(folder.path()), (Names{"step_4"}));
}

TEST(Checkpoint, IsNotWrittenAgainWithTheSameContent) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  const auto before = fs::last_write_time(folder / "step_4" / "MANIFEST");
  write_checkpoint(folder.path(), tiny_checkpoint(4));
  EXPECT_EQ(fs::last_write_time(folder / "step_4" / "MANIFEST"), before);
  EXPECT_EQ(all_names(folder.path()), (Names{"step_4"}));
}

// First after the last batch of an epoch, then at the end of that epoch.
TEST(Checkpoint, SavedAgainWithTheSameWeightsLeavesNothingBehind) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  Checkpoint later = tiny_checkpoint(4);
  later.training["epoch"].fill_(9);
  EXPECT_TRUE(write_checkpoint(folder.path(), later, kFast).empty());
  expect_equal(read(folder.path()), later);
  EXPECT_EQ(all_names(folder.path()), (Names{"step_4"}));
}

TEST(Checkpoint, MovesCheckpointsOfAnAbandonedBranchAside) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(9, "other"), kFast);
  for (const int64_t step : {2, 4, 6, 8, 12}) {
    write_checkpoint(folder.path(), tiny_checkpoint(step), kFast);
  }
  const Checkpoint first = with_weights(tiny_checkpoint(8), 70);
  const auto aside = write_checkpoint(
      folder.path(),
      first,
      {.durable = false, .branch_step = 4});
  EXPECT_EQ(aside.size(), 3u);
  EXPECT_EQ(
      all_names(folder.path()),
      (Names{
          "step_12.replaced-1",
          "step_2",
          "step_4",
          "step_6.replaced-1",
          "step_8",
          "step_8.replaced-1",
          "step_9"}));
  expect_equal(read(folder / "step_8"), first);
  expect_equal(read(folder / "step_12.replaced-1"), tiny_checkpoint(12));
}

TEST(Checkpoint, KeepsTheRequestedNumberOfReplacedOnes) {
  const TempFolder folder;
  const WriteCheckpointOptions options{.keep = 2, .durable = false};
  for (int i = 0; i < 5; ++i) {
    write_checkpoint(
        folder.path(),
        with_weights(tiny_checkpoint(4), i),
        options);
  }
  EXPECT_EQ(
      all_names(folder.path()),
      (Names{"step_4", "step_4.replaced-3", "step_4.replaced-4"}));
}

// Between the two renames of a save, the old content has a name that readers
// accept. The next run restores its original name.
TEST(Checkpoint, IsReadableInTheMiddleOfItsReplacement) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  fs::rename(folder / "step_4", folder / "step_4.before");
  EXPECT_TRUE(has_checkpoint(folder.path()));
  expect_equal(read(folder.path()), tiny_checkpoint(4));
  remove_unfinished_checkpoints(folder.path());
  EXPECT_EQ(all_names(folder.path()), (Names{"step_4"}));

  fs::rename(folder / "step_4", folder / "step_4.before");
  write_checkpoint(folder / "new", with_weights(tiny_checkpoint(4), 70), kFast);
  fs::rename(folder / "new" / "step_4", folder / "step_4");
  remove_unfinished_checkpoints(folder.path());
  EXPECT_EQ(all_names(folder.path()), (Names{"step_4", "step_4.replaced-1"}));
  EXPECT_EQ(read(folder.path()).model["bias"][0].item<float>(), 70);
}

// Removal starts with the manifest.
TEST(Checkpoint, HalfRemovedIsRemovedByTheNextRun) {
  const TempFolder folder;
  for (const int64_t step : {1, 2, 3, 4}) {
    write_checkpoint(folder.path(), tiny_checkpoint(step), kFast);
  }
  write_checkpoint(folder.path(), with_weights(tiny_checkpoint(3), 70), kFast);
  for (const char* name : {"step_1", "step_2", "step_3.replaced-1"}) {
    fs::remove(folder / name / "MANIFEST");
  }
  fs::remove(folder / "step_2" / "optimizer.safetensors");
  remove_unfinished_checkpoints(folder.path());
  EXPECT_EQ(all_names(folder.path()), (Names{"step_3", "step_4"}));
  // The newest is never removed, so this one is damaged.
  fs::remove(folder / "step_4" / "MANIFEST");
  remove_unfinished_checkpoints(folder.path());
  EXPECT_EQ(all_names(folder.path()), (Names{"step_3", "step_4"}));
}

TEST(Checkpoint, IsFoundWhateverTheFileLatestContains) {
  const TempFolder folder;
  write_checkpoint(folder / "run", tiny_checkpoint(4), kFast);
  for (const char* text : {"", "step_99\n", "../../etc\n"}) {
    write_file(folder / "run" / "latest", std::string_view(text));
    EXPECT_EQ(read(folder / "run").step, 4) << text;
  }
  fs::remove(folder / "run" / "latest");
  EXPECT_EQ(read(folder / "run").step, 4);
}

void write_byte(const fs::path& path, size_t at, int byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte));
}

bool is_rejected(const fs::path& step) {
  try {
    (void)read(step);
  } catch (const CheckpointError&) {
    return true;
  }
  return false;
}

TEST(Checkpoint, IsRejectedForEverySingleFlippedBit) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  const auto files = files_of(folder / "step_4");
  ASSERT_EQ(files.size(), 4u);
  std::mt19937 random(5);
  for (int i = 0; i < 2500; ++i) {
    for (const auto& [path, bytes] : files) {
      const size_t at = random() % bytes.size();
      write_byte(path, at, bytes[at] ^ (1 << random() % 8));
      ASSERT_TRUE(is_rejected(folder / "step_4")) << path;
      write_byte(path, at, bytes[at]);
    }
  }
  EXPECT_EQ(read(folder.path()).step, 4);
}

TEST(Checkpoint, IsRejectedWhereverAFileIsTruncated) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  for (const auto& [path, bytes] : files_of(folder / "step_4")) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      write_file(path, std::span(bytes).first(size));
      ASSERT_TRUE(is_rejected(folder / "step_4")) << path << " " << size;
    }
    fs::remove(path);
    ASSERT_TRUE(is_rejected(folder / "step_4")) << path;
    write_file(path, bytes);
  }
}

TEST(Checkpoint, IsRejectedWithANewerFormatNamingBothFormats) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(4), kFast);
  write_file(
      folder / "step_4" / "MANIFEST",
      std::string_view("tern-checkpoint 2\nsomething else\n"));
  expect_error<CheckpointError>(
      [&] { (void)read(folder / "step_4"); },
      {"format 2", "format 1"});
}

TEST(Checkpoint, IsAlwaysCompleteForAConcurrentReader) {
  const TempFolder folder;
  write_checkpoint(folder.path(), tiny_checkpoint(0), kFast);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int64_t step = 1; !stop; ++step) {
      write_checkpoint(
          folder.path(),
          tiny_checkpoint(step),
          {.keep = 50, .durable = false});
    }
  });
  int64_t last = 0;
  for (int i = 0; i < 200; ++i) {
    const Checkpoint checkpoint = read(folder.path());
    EXPECT_GE(checkpoint.step, last);
    EXPECT_EQ(checkpoint.model["bias"][0].item<int64_t>(), checkpoint.step);
    last = checkpoint.step;
  }
  stop = true;
  writer.join();
  EXPECT_GT(last, 0);
}

TEST(Checkpoint, CanBeWrittenToFoldersWithAnyName) {
  const TempFolder folder;
  for (const char* name :
       {"with space", "\xc3\xbcml\xc3\xa4ut", "line\nbreak"}) {
    write_checkpoint(folder / name, tiny_checkpoint(1), kFast);
    EXPECT_EQ(read(folder / name).step, 1) << name;
  }
}

TEST(Checkpoint, CannotBeWrittenIntoAFile) {
  const TempFolder folder;
  write_file(folder / "file", std::string_view("text"));
  expect_error<IoError>(
      [&] { write_checkpoint(folder / "file", tiny_checkpoint(1)); },
      {"file"});
}

}  // namespace
}  // namespace tern::checkpoint_test
