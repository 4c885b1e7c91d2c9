#include "tern/data/formats/atomic_file.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::atomic_file_test {
namespace {

std::string text_of(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

TEST(AtomicFile, AppearsUnderItsNameOnlyWhenComplete) {
  const TempFolder temp;
  write_file(temp / "a", "old");
  AtomicFile file(temp / "a");
  file.write("new ");
  file.write("text");
  EXPECT_EQ(file.size(), 8u);
  EXPECT_EQ(text_of(temp / "a"), "old");
  file.commit();
  EXPECT_EQ(text_of(temp / "a"), "new text");
  EXPECT_EQ(temp.entries(), 1);
}

TEST(AtomicFile, IsRemovedIfItIsNeverCompleted) {
  const TempFolder temp;
  write_file(temp / "a", "old");
  try {
    AtomicFile file(temp / "a");
    file.write("half");
    throw std::runtime_error("the saver fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(text_of(temp / "a"), "old");
  EXPECT_EQ(temp.entries(), 1);
}

TEST(AtomicFile, RemovesOnlyLeftoversOfKilledProcesses) {
  const TempFolder temp;
  write_file(temp / ".a.tmp-0123456789abcdef", "left by a killed process");
  write_file(temp / ".b.tmp-0123456789abcdef", "of another target");
  AtomicFile other(temp / "a");  // still in use
  other.write("other");
  AtomicFile file(temp / "a");
  EXPECT_EQ(temp.entries(), 3);  // `other`, `file` and the leftover of b
  file.commit(/*durable=*/false);
  other.commit(/*durable=*/false);
  EXPECT_EQ(text_of(temp / "a"), "other");
  EXPECT_EQ(temp.entries(), 2);
}

TEST(AtomicFile, ConcurrentWritersOfOneNameDoNotDisturbEachOther) {
  const TempFolder temp;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&temp, t] {
      for (int i = 0; i < 50; ++i) {
        AtomicFile file(temp / "a");
        file.write(std::string(1000, static_cast<char>('a' + t)));
        file.commit(/*durable=*/false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = text_of(temp / "a");
  EXPECT_EQ(text, std::string(1000, text.at(0)));
  EXPECT_EQ(temp.entries(), 1);
}

TEST(AtomicFile, NamesTheFileThatCannotBeWritten) {
  const TempFolder temp;
  expect_error<IoError>(
      [&] { AtomicFile file(temp / "no/a"); },
      {"no/a", "No such file"});
  std::filesystem::create_directory(temp / "folder");
  expect_error<IoError>(
      [&] {
        AtomicFile file(temp / "folder");
        file.commit();
      },
      {"folder", "rename"});
  EXPECT_EQ(temp.entries(), 1);
  // Even a name of maximum length leaves room for the temporary file next to
  // it.
  const std::string longest(255, 'x');
  AtomicFile file(temp / longest);
  file.commit();
  EXPECT_TRUE(std::filesystem::exists(temp / longest));
}

}  // namespace
}  // namespace tern::atomic_file_test
