#include "tern/data/download/untar_data.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/download/download.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/tar_bytes.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/test_data.h"

namespace tern::untar_data_test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> small_tgz(const std::string& content) {
  TarBytes tar;
  tar.add("small/", "", '5').add("small/train/a.txt", content);
  return gzip_bytes(tar.add("small/labels.csv", "x").finish().bytes);
}

void write_small(const fs::path& folder) {
  make_folders(folder / "train");
  write_file(folder / "train/a.txt", std::string_view("by hand"));
}

// Serves a dataset called "small" from a local server, with temporary folders.
class UntarDataTest : public testing::Test {
 protected:
  UntarDataTest()
      : server_([this](const HttpServer::Request& request) {
          return is_up_ ? HttpServer::range(body_, request.offset)
                        : HttpServer::response("503 Busy", "", "");
        }),
        url_(server_.url("/small.tgz")) {
    const auto tgz = small_tgz("from the server");
    body_.assign(tgz.begin(), tgz.end());
    sha256_ = sha256(tgz);
    file_ = {url_, static_cast<int64_t>(tgz.size()), sha256_};
    fs::create_directory(temp_ / "data");
  }

  DatasetUrl dataset() const { return {"small", std::span(&file_, 1)}; }
  UntarOptions options() {
    return {
        .data = temp_ / "data",
        .cache = temp_ / "cache",
        .sink = [this](const std::string& line) { said_ += line + "\n"; }};
  }
  std::string content(const fs::path& folder) const {
    return text_of(folder / "train/a.txt");
  }

  TempFolder temp_;
  bool is_up_ = true;
  std::string body_, sha256_;
  HttpServer server_;
  std::string url_, said_;
  DatasetFile file_;
};

TEST_F(UntarDataTest, DownloadsOnceAndThenUsesTheCache) {
  const fs::path path = untar_data(dataset(), options());
  EXPECT_EQ(path, temp_ / "cache/small");
  EXPECT_EQ(content(path), "from the server");
  EXPECT_NE(said_.find("small: downloading http"), std::string::npos) << said_;
  EXPECT_FALSE(fs::exists(temp_ / "cache/archives/small.tgz"));

  said_.clear();
  EXPECT_EQ(untar_data(dataset(), options()), path);
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(said_, "");
}

TEST_F(UntarDataTest, PrefersALocalArchiveToTheNetwork) {
  for (const char* place : {"data/small.tgz", "data/small/small.tgz"}) {
    make_folders((temp_ / place).parent_path());
    write_file(temp_ / place, small_tgz("from the archive"));
    const fs::path path = untar_data(dataset(), options());
    EXPECT_EQ(path, temp_ / "cache/small");
    EXPECT_EQ(content(path), "from the archive");
    fs::remove_all(temp_ / "cache");
    fs::remove(temp_ / place);
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(UntarDataTest, UsesAnExtractedFolderUnchanged) {
  write_small(temp_ / "data/small");
  EXPECT_EQ(untar_data(dataset(), options()), temp_ / "data/small");
  EXPECT_FALSE(fs::exists(temp_ / "cache"));
}

TEST_F(UntarDataTest, ExtractsADifferentArchiveNextToTheFirst) {
  const fs::path first = untar_data(dataset(), options());
  write_file(temp_ / "data/small.tgz", small_tgz("from the archive"));
  const fs::path second = untar_data(dataset(), options());
  EXPECT_NE(first, second);
  EXPECT_EQ(content(first), "from the server");
  EXPECT_EQ(content(second), "from the archive");
  EXPECT_EQ(untar_data(dataset(), options()), second);
}

TEST_F(UntarDataTest, TrustsAFolderPlacedInTheCacheByHand) {
  write_small(temp_ / "cache/small");
  EXPECT_EQ(untar_data(dataset(), options()), temp_ / "cache/small");
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(UntarDataTest, RecreatesAFolderThatLostFiles) {
  const fs::path path = untar_data(dataset(), options());
  fs::remove_all(path / "train");
  EXPECT_EQ(untar_data(dataset(), options()), path);
  EXPECT_EQ(content(path), "from the server");
  EXPECT_NE(said_.find("lost some of its files"), std::string::npos) << said_;
}

// Simulates a restart after a power cut: the marker is from an earlier boot.
void forget_the_start(const fs::path& folder) {
  std::string marker = text_of(folder / ".tern-source");
  marker[marker.size() - 2] ^= 1;
  write_file(folder / ".tern-source", marker);
}

TEST_F(UntarDataTest, CountsTheFilesAgainAfterARestart) {
  const fs::path path = untar_data(dataset(), options());
  const std::string marker = text_of(path / ".tern-source");
  make_folders(path / "models");
  write_file(path / "models/mine.pth", std::string_view("mine"));
  forget_the_start(path);
  untar_data(dataset(), options());
  EXPECT_EQ(text_of(path / ".tern-source"), marker);
  EXPECT_EQ(server_.requests().size(), 1u);

  forget_the_start(path);
  write_file(path / "train/a.txt", std::string_view(""));
  EXPECT_EQ(untar_data(dataset(), options()), path);
  EXPECT_EQ(content(path), "from the server");
  EXPECT_TRUE(fs::exists(temp_ / "cache/small.incomplete-1/models/mine.pth"));

  write_file(path / ".tern-source", std::string_view(""));
  untar_data(dataset(), options());
  EXPECT_EQ(server_.requests().size(), 3u);
}

TEST_F(UntarDataTest, ExplainsWhatToDoWithoutInternetAccess) {
  const int port = [] {
    return HttpServer([](const auto&) { return ""; }).port();
  }();
  const std::string url =
      "http://127.0.0.1:" + std::to_string(port) + "/small.tgz";
  file_.url = url;
  expect_error<DownloadError>(
      [&] { untar_data(dataset(), options()); },
      {url,
       "Check the network",
       "or set TERN_DATA to a folder that holds small.tgz"});
  EXPECT_FALSE(fs::exists(temp_ / "cache/small"));

  write_file(temp_ / "data/small.tgz", small_tgz("from the archive"));
  EXPECT_EQ(content(untar_data(dataset(), options())), "from the archive");
}

TEST_F(UntarDataTest, DownloadsNothingIfNotAllowed) {
  UntarOptions offline = options();
  offline.allow_download = false;
  expect_error<DownloadError>(
      [&] { untar_data(dataset(), offline); },
      {url_, "allow_download", "TERN_DATA to a folder that holds small.tgz"});
  EXPECT_TRUE(server_.requests().empty());

  const fs::path path = untar_data(dataset(), options());
  EXPECT_EQ(untar_data(dataset(), offline), path);
}

TEST_F(UntarDataTest, RejectsADownloadWithAWrongHash) {
  body_[100] ^= 1;
  expect_error<DataError>([&] { untar_data(dataset(), options()); }, {sha256_});
  EXPECT_FALSE(fs::exists(temp_ / "cache/small"));
}

TEST_F(UntarDataTest, DownloadsNothingThatItCannotCheck) {
  file_.sha256 = {};
  expect_error<DataError>(
      [&] { untar_data(dataset(), options()); },
      {"SHA-256 are unknown"});
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(UntarDataTest, NamesADamagedArchiveAndLeavesNoFiles) {
  auto tgz = small_tgz("from the archive");
  tgz.resize(tgz.size() / 2);
  write_file(temp_ / "data/small.tgz", tgz);
  expect_error<DataError>(
      [&] { untar_data(dataset(), options()); },
      {"data/small.tgz: "});
  for (const auto& entry : fs::directory_iterator(temp_ / "cache")) {
    EXPECT_EQ(entry.path().filename(), ".small.lock");
  }
}

TEST_F(UntarDataTest, RejectsADataFolderThatDoesNotExist) {
  UntarOptions wrong = options();
  wrong.data = temp_ / "none";
  expect_error<DataError>(
      [&] { untar_data(dataset(), wrong); },
      {"is not a folder"});
}

TEST_F(UntarDataTest, ServesConcurrentProcesses) {
  write_file(temp_ / "data/small.tgz", small_tgz("from the archive"));
  const UntarOptions shared = options();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        const fs::path path = untar_data(dataset(), shared);
        code = content(path) == "from the archive" ? 0 : 2;
      } catch (...) {
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(untar_data(dataset(), shared), temp_ / "cache/small");
}

TEST_F(UntarDataTest, ShowsDownloadAndExtractionInTheSink) {
  struct Bars final : SinkImpl {
    void line(const std::string& text) override { said += text; }
    void progress(const Progress& now) override {
      tasks.emplace_back(now.task);
    }
    std::string said;
    std::vector<std::string> tasks;
  };
  const auto bars = std::make_shared<Bars>();
  UntarOptions shown = options();
  shown.sink = bars;
  untar_data(dataset(), shown);
  EXPECT_NE(bars->said.find("downloading"), std::string::npos) << bars->said;
  for (const char* task : {"MB downloaded", "MB extracted"}) {
    EXPECT_NE(std::ranges::count(bars->tasks, task), 0) << task;
  }
}

TEST_F(UntarDataTest, WritesToTheTerminalWithoutASink) {
  UntarOptions plain = options();
  plain.sink = {};
  testing::internal::CaptureStdout();
  untar_data(dataset(), plain);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find("small: downloading http"), std::string::npos) << shown;
}

// The real dataset is extracted once for all tests, into TERN_CACHE.
TEST(UntarData, FindsTheExtractedMnistSampleQuickly) {
  TERN_REQUIRE_DATA(data);
  const fs::path path = untar_data(urls::mnist_sample);
  EXPECT_TRUE(fs::exists(path / "train/3/7.png"));
  EXPECT_TRUE(fs::exists(path / "valid/7"));
  EXPECT_TRUE(fs::exists(path / "labels.csv"));

  // Without checking its 14,434 files.
  double find = 1e9, list = 1e9;
  for (int i = 0; i < 5; ++i) {
    testing_support::keep_least(find, [&] {
      EXPECT_EQ(untar_data(urls::mnist_sample), path);
    });
    testing_support::keep_least(list, [&] {
      EXPECT_GT(
          std::distance(
              fs::recursive_directory_iterator(path),
              fs::recursive_directory_iterator()),
          14'000);
    });
  }
  EXPECT_LT(10 * find, list);
}

TEST(UntarData, DecompressesTheFilesOfMnist) {
  TERN_REQUIRE_DATA(data);
  const fs::path path = untar_data(urls::mnist);
  EXPECT_EQ(fs::file_size(path / "train-images-idx3-ubyte"), 47'040'016u);
  EXPECT_EQ(fs::file_size(path / "t10k-labels-idx1-ubyte"), 10'008u);
}

}  // namespace
}  // namespace tern::untar_data_test
