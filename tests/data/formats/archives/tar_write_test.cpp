#include "tern/data/formats/archives/tar_write.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::tar_write_test {
namespace {

std::string write_small(const std::filesystem::path& path) {
  TarWriter tar(path);
  tar.add("cat/1.jpg", std::string(700, 'x'));
  tar.add("cat/1.cls", "7");
  tar.add(std::string(140, 'k') + "/\xc3\xa4\xff.txt", "long and not UTF-8");
  return tar.finish();
}

TEST(TarWrite, WritesAnArchiveThatReadsBack) {
  const TempFolder temp;
  write_small(temp / "a.tar");
  const ByteFile file(temp / "a.tar");
  const auto members = read_tar_index(file);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].name, "cat/1.jpg");
  EXPECT_EQ(members[2].name, std::string(140, 'k') + "/\xc3\xa4\xff.txt");
  EXPECT_EQ(
      file.read(members[1].offset, members[1].size),
      std::vector<uint8_t>{'7'});
  std::filesystem::create_directory(temp / "out");
  extract_tar(temp / "a.tar", temp / "out");
  EXPECT_EQ(std::filesystem::file_size(temp / "out/cat/1.jpg"), 700u);
}

TEST(TarWrite, WritesReproducibleBytesAndTheirChecksum) {
  const TempFolder temp;
  const std::string sum = write_small(temp / "a.tar");
  EXPECT_EQ(write_small(temp / "b.tar"), sum);
  EXPECT_EQ(sha256_file(temp / "a.tar"), sum);
  EXPECT_EQ(sha256_file(temp / "b.tar"), sum);
}

TEST(TarWrite, LeavesNoFileIfItIsNotFinished) {
  const TempFolder temp;
  {
    TarWriter tar(temp / "a.tar");
    tar.add("1.jpg", std::string(3 << 20, 'x'));
  }
  EXPECT_EQ(temp.entries(), 0);
}

TEST(TarWrite, RejectsNamesThatShardsMustNotContain) {
  const TempFolder temp;
  TarWriter tar(temp / "a.tar");
  expect_error<DataError>(
      [&] { tar.add("../1.jpg", "x"); },
      {"a.tar", "'../1.jpg'", "leads out of the folder"});
}

}  // namespace
}  // namespace tern::tar_write_test
