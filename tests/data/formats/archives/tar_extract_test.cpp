#include <csignal>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/tar_bytes.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::tar_extract_test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

std::string text_of(const fs::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// Returns an archive with a file in a folder that has no entry, a file that
// ends in a whole block of zeros, and a file whose last block is partly empty.
Bytes small_tar() {
  return TarBytes()
      .add("data/", "", '5')
      .add("data/train/3/1.txt", "one")
      .add("./data/zeros.bin", std::string(1024, '\0'))
      .add("data/labels.csv", std::string(600, 'x'))
      .finish()
      .bytes;
}

// Extracts all or nothing, through a staging folder.
void extract_staged(
    const fs::path& archive,
    const fs::path& folder,
    const ExtractOptions& options = {}) {
  StagingFolder staging(folder);
  extract_tar(archive, staging.path(), options);
  staging.publish();
}

void extract_bytes(
    const TempFolder& temp,
    const Bytes& bytes,
    const ExtractOptions& options = {}) {
  write_file(temp / "a.tar", bytes);
  extract_staged(temp / "a.tar", temp / "out", options);
}

TEST(TarExtract, WritesFilesAndFolders) {
  for (const Bytes& bytes : {small_tar(), gzip_bytes(small_tar())}) {
    const TempFolder temp;
    extract_bytes(temp, bytes);
    EXPECT_EQ(text_of(temp / "out/data/train/3/1.txt"), "one");
    EXPECT_EQ(text_of(temp / "out/data/labels.csv"), std::string(600, 'x'));
    EXPECT_EQ(fs::file_size(temp / "out/data/zeros.bin"), 1024u);
    EXPECT_EQ(temp.entries(), 8);  // a.tar, out, data, train, 3, three files
  }
}

TEST(TarExtract, LeavesNoFilesOfATruncatedArchive) {
  const TempFolder temp;
  const Bytes whole = small_tar();
  // The end of each block and one byte to either side; a single empty block is
  // a sufficient end marker.
  std::vector<size_t> sizes{0, 1};
  for (size_t end = 512; end + 512 < whole.size(); end += 512) {
    sizes.insert(sizes.end(), {end - 1, end, end + 1});
  }
  for (const size_t size : sizes) {
    write_file(temp / "a.tar", std::span(whole).first(size));
    EXPECT_THROW(extract_staged(temp / "a.tar", temp / "out"), DataError)
        << size << " bytes";
    EXPECT_EQ(temp.entries(), 1) << size << " bytes";
  }
}

TEST(TarExtract, LeavesNoFilesOfATruncatedGzip) {
  const TempFolder temp;
  const Bytes whole = gzip_bytes(small_tar());
  for (size_t size = 0; size < whole.size(); size += 5) {
    write_file(temp / "a.tgz", std::span(whole).first(size));
    EXPECT_THROW(extract_staged(temp / "a.tgz", temp / "out"), DataError)
        << size << " bytes";
    EXPECT_EQ(temp.entries(), 1) << size << " bytes";
  }
}

TEST(TarExtract, NeverWritesWrongBytesAfterOneFlippedBitOfAGzip) {
  const Bytes whole = gzip_bytes(small_tar());
  int refused = 0, tried = 0;
  for (size_t bit = 80; bit < 8 * whole.size(); bit += 37, ++tried) {
    const TempFolder temp;
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    try {  // deflate has a few unused bits
      extract_bytes(temp, flipped);
      EXPECT_EQ(text_of(temp / "out/data/train/3/1.txt"), "one");
      EXPECT_EQ(text_of(temp / "out/data/labels.csv"), std::string(600, 'x'));
    } catch (const DataError&) {
      EXPECT_EQ(temp.entries(), 1);
      ++refused;
    }
  }
  EXPECT_GT(refused, tried * 9 / 10);
}

TEST(TarExtract, HandlesAnyByteInAHeader) {
  const TempFolder temp;
  const Bytes whole =
      TarBytes().add("a.txt", "content").add("b.txt", "b").finish().bytes;
  for (size_t at = 0; at<512; at += at % 100> 20 ? 9 : 1) {
    for (const int value : {0x39, 0xff}) {
      Bytes changed = whole;
      changed[at] = static_cast<uint8_t>(value);
      if (at < 148 || at >= 156) {  // with a corrected checksum
        char header[512];
        std::copy_n(changed.begin(), 512, header);
        const Bytes fixed = TarBytes().add_raw(header, "").bytes;
        std::copy(fixed.begin(), fixed.end(), changed.begin());
      }
      write_file(temp / "a.tar", changed);
      fs::create_directory(temp / "out");
      try {
        extract_tar(temp / "a.tar", temp / "out", {.max_bytes = 1 << 20});
      } catch (const DataError&) {
      }
      EXPECT_LE(temp.entries(), 5) << at << " " << value;
      fs::remove_all(temp / "out");
    }
  }
}

struct BadEntry {
  const char* name;
  char type;
  const char* link;
  const char* words;
};

TEST(TarExtract, RejectsEntriesThatCouldLeaveTheFolder) {
  const std::vector<BadEntry> cases = {
      {"../tern-x",
       '0',
       "",
       "'../tern-x' has a name that leads out of the folder"},
      {"a/../../tern-x", '0', "", "leads out of the folder"},
      {"..", '5', "", "leads out of the folder"},
      {"/tmp/tern-x", '0', "", "absolute path"},
      {"C:/x", '0', "", "drive letter"},
      {"..\\x", '0', "", "backslash"},
      {"link", '2', "/etc", "is a symbolic link"},
      {"link", '2', "x", "is a symbolic link"},
      {"link", '1', "ok.txt", "is a hard link"},
      {"null", '3', "", "is a device"},
      {"disk", '4', "", "is a device"},
      {"pipe", '6', "", "is a device, a pipe"},
      {"bell\a", '2', "x", "'bell\\x07'"},
      {"ok.txt", '0', "", "'ok.txt' is duplicated"},
  };
  for (const BadEntry& c : cases) {
    const TempFolder temp;
    TarBytes tar;
    tar.add("ok.txt", "ok").add(c.name, "", c.type, c.link).finish();
    expect_error<DataError>([&] { extract_bytes(temp, tar.bytes); }, {c.words});
    expect_error<DataError>(
        [&] { extract_bytes(temp, tar.bytes); },
        {"a.tar: "});
    EXPECT_EQ(temp.entries(), 1) << c.name;
    EXPECT_FALSE(fs::exists(temp.path().parent_path() / "tern-x"));
  }
}

TEST(TarExtract, RejectsFilesThatAreNotTar) {
  for (const Bytes& bytes :
       {Bytes{}, Bytes(100, 'x'), Bytes(5000, 'x'), Bytes(5000, 0)}) {
    const TempFolder temp;
    EXPECT_THROW(extract_bytes(temp, bytes), DataError);
    EXPECT_EQ(temp.entries(), 1);
  }
}

TEST(TarExtract, EnforcesTheLimits) {
  const TempFolder temp;
  expect_error<DataError>(
      [&] { extract_bytes(temp, small_tar(), {.max_entries = 2}); },
      {"more than the 2 entries"});
  expect_error<DataError>(
      [&] { extract_bytes(temp, small_tar(), {.max_bytes = 3000}); },
      {"more than the limit of 3000 bytes"});
  EXPECT_EQ(temp.entries(), 1);
}

// All ways in which an archive can declare a file of five bytes to have a
// million.
std::vector<std::pair<std::string, Bytes>> inflated_tars() {
  using Records = std::vector<std::pair<std::string, std::string>>;
  const std::string size = "1000000", offset = "999995";
  std::vector<std::pair<std::string, Bytes>> tars;
  for (const auto& [name, records] :
       std::vector<std::pair<std::string, Records>>{
           {"star", {{"SCHILY.realsize", size}}},
           {"a GNU size", {{"GNU.sparse.size", size}}},
           {"a GNU real size", {{"GNU.sparse.realsize", size}}},
           {"GNU 0.0",
            {{"GNU.sparse.size", size},
             {"GNU.sparse.numblocks", "1"},
             {"GNU.sparse.offset", offset},
             {"GNU.sparse.numbytes", "5"}}},
           {"GNU 0.1",
            {{"GNU.sparse.size", size},
             {"GNU.sparse.numblocks", "1"},
             {"GNU.sparse.map", offset + ",5"}}},
           {"GNU 0.1 with data behind the size",
            {{"GNU.sparse.map", offset + ",5"}}},
           {"Solaris, data first",
            {{"SCHILY.realsize", size}, {"SUN.holesdata", " 0 5 " + size}}},
           {"Solaris, a hole first",
            {{"SCHILY.realsize", size},
             {"SUN.holesdata", " " + offset + " " + size}}}}) {
    tars.emplace_back(
        name,
        TarBytes().add_pax(records).add("a.txt", "hello").finish().bytes);
  }
  tars.emplace_back(
      "GNU 1.0",
      TarBytes()
          .add_pax(
              {{"GNU.sparse.major", "1"},
               {"GNU.sparse.minor", "0"},
               {"GNU.sparse.name", "a.txt"},
               {"GNU.sparse.realsize", size}})
          .add(
              "GNUSparseFile.0/a.txt",
              ("1\n" + offset + "\n5\n" + std::string(501, '\0') + "hello"))
          .finish()
          .bytes);
  for (const bool has_map : {true, false}) {
    char header[512] = {};
    std::snprintf(header, 100, "a.txt");
    std::snprintf(header + 124, 12, "%011o", 5);
    header[156] = has_map ? 'S' : '0';
    std::memcpy(header + 257, "ustar  ", 8);
    if (has_map) {
      std::snprintf(header + 386, 12, "%011o", 999995);
      std::snprintf(header + 398, 12, "%011o", 5);
    }
    std::snprintf(header + 483, 12, "%011o", 1000000);
    tars.emplace_back(
        has_map ? "old GNU" : "old GNU without a map",
        TarBytes().add_raw(header, "hello").finish().bytes);
  }
  return tars;
}

TEST(TarExtract, EnforcesTheLimitForSparseFiles) {
  for (const auto& [name, bytes] : inflated_tars()) {
    // Below and above the limit, only the five existing bytes may be written.
    for (const int64_t limit : {100'000, 10'000'000}) {
      const TempFolder temp;
      write_file(temp / "a.tar", bytes);
      fs::create_directory(temp / "out");
      expect_error<DataError>(
          [&] {
            extract_tar(temp / "a.tar", temp / "out", {.max_bytes = limit});
          },
          {"a.tar: ", "a.txt"});
      const fs::path file = temp / "out/a.txt";
      EXPECT_LE(fs::exists(file) ? fs::file_size(file) : 0, 5u) << name;
    }
  }
}

// The default limit must reject a file of a terabyte before extraction starts.
TEST(TarExtract, RejectsATerabyteFileInAnArchiveOfKilobytes) {
  const TempFolder temp;
  write_file(
      temp / "a.tar",
      TarBytes()
          .add_pax({{"SCHILY.realsize", "1000000000000"}})
          .add("a.txt", "hello")
          .finish()
          .bytes);
  fs::create_directory(temp / "out");
  // If extraction starts nevertheless, it stops at a megabyte.
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{1 << 20, old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const std::string error =
      error_of<DataError>([&] { extract_tar(temp / "a.tar", temp / "out"); });
  std::signal(SIGXFSZ, old_handler);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_NE(
      error.find("more than the limit of 68719476736 bytes"),
      std::string::npos)
      << error;
  EXPECT_TRUE(fs::is_empty(temp / "out"));
}

TEST(TarExtract, DoesNotChangeAnExistingFolder) {
  const TempFolder temp;
  fs::create_directory(temp / "out");
  write_file(temp / "out/mine.txt", "mine");
  extract_bytes(temp, small_tar());
  EXPECT_EQ(temp.entries(), 3);
}

TEST(TarExtract, CreatesOneCompleteFolderForConcurrentCalls) {
  const TempFolder temp;
  write_file(temp / "a.tar", small_tar());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { extract_staged(temp / "a.tar", temp / "out"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(text_of(temp / "out/data/train/3/1.txt"), "one");
  EXPECT_EQ(temp.entries(), 8);
}

TEST(TarExtract, ReportsProgressAndStopsOnRequest) {
  const TempFolder temp;
  int64_t last = 0, last_total = 0;
  extract_bytes(temp, small_tar(), {.progress = [&](int64_t n, int64_t total) {
                  last = n, last_total = total;
                }});
  EXPECT_EQ(last, static_cast<int64_t>(small_tar().size()));
  EXPECT_EQ(last_total, last);

  const TempFolder other;
  const ExtractOptions stop{
      .progress = [](int64_t, int64_t) { throw std::runtime_error("stop"); }};
  EXPECT_EQ(
      error_of<std::runtime_error>(
          [&] { extract_bytes(other, small_tar(), stop); }),
      "stop");
  EXPECT_EQ(other.entries(), 1);
}

}  // namespace
}  // namespace tern::tar_extract_test
