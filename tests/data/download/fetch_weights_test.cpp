#include "tern/data/download/fetch_weights.h"

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/download/byte_progress.h"
#include "tern/data/download/download.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::fetch_weights_test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// Serves "net-DIGITS.pth" from a local server, with temporary folders.
class FetchWeightsTest : public testing::Test {
 protected:
  FetchWeightsTest()
      : server_([this](const HttpServer::Request& request) {
          if (!is_up_) return HttpServer::response("404 Not Found", "", "");
          std::string reply = HttpServer::range(body_, request.offset);
          if (cut_ > 0) reply.resize(reply.size() - cut_);
          return reply;
        }) {
    body_ = std::string(200'000, 'w') + "eights";
    hash_ = sha256(as_bytes(body_));
    weights_.url = server_.url("/net-" + hash_.substr(0, 8) + ".pth");
    fs::create_directory(temp_ / "folder");
  }

  fs::path fetch() { return fetch_weights(weights_, options_); }
  fs::path cached() const {
    return temp_ / "cache/weights" / weights_.file_name();
  }
  fs::path list() const { return cached().string() + ".sha256"; }
  fs::path given() const { return temp_ / "folder" / weights_.file_name(); }

  TempFolder temp_;
  bool is_up_ = true;
  size_t cut_ = 0;
  std::string body_, hash_, said_;
  HttpServer server_;
  PublishedWeights weights_;
  FetchWeightsOptions options_{
      .cache = temp_ / "cache",
      .sink = [this](const std::string& line) { said_ += line + "\n"; }};
};

TEST_F(FetchWeightsTest, DownloadsOnceAndRecordsTheFullHash) {
  EXPECT_EQ(fetch(), cached());
  EXPECT_EQ(text_of(cached()), body_);
  EXPECT_EQ(text_of(list()), hash_ + "  " + weights_.file_name() + "\n");
  EXPECT_NE(said_.find("downloading " + weights_.url), std::string::npos);

  said_.clear();
  EXPECT_EQ(fetch(), cached());
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(verify_weights(cached()), hash_);
}

TEST_F(FetchWeightsTest, ContinuesWhereItWasInterrupted) {
  cut_ = 100'000;
  const auto stop = [](int64_t done, int64_t) {
    if (done > 50'000) throw std::runtime_error("enough");
  };
  EXPECT_THROW(
      download(
          weights_.url,
          cached(),
          {.sha256 = hash_.substr(0, 8), .progress = stop}),
      std::runtime_error);
  const auto part = fs::file_size(cached().string() + ".part");
  EXPECT_GT(part, 0u);
  EXPECT_FALSE(fs::exists(cached()));

  cut_ = 0;
  fetch();
  EXPECT_EQ(server_.requests().back().offset, part);
  EXPECT_EQ(text_of(cached()), body_);
}

TEST_F(FetchWeightsTest, RejectsAHashThatDiffersFromTheName) {
  body_[7] ^= 1;
  expect_error<DownloadError>(
      [&] { fetch(); },
      {weights_.url,
       "expected a SHA-256 that begins with " + hash_.substr(0, 8),
       "set TERN_WEIGHTS to a folder that holds " + weights_.file_name()});
  EXPECT_FALSE(fs::exists(cached()));
  EXPECT_FALSE(fs::exists(list()));
}

TEST_F(FetchWeightsTest, RequiresTheHashOfTheFirstDownloadLater) {
  weights_.url = server_.url("/net.pth");  // no hash in the name
  fetch();
  EXPECT_EQ(text_of(list()), hash_ + "  net.pth\n");
  fs::remove(cached());
  body_ += "of tomorrow";
  expect_error<DownloadError>(
      [&] { fetch(); },
      {"expected " + hash_,
       "remove " + list().string() + " if its authors have replaced the file"});
  fs::remove(list());
  fetch();
  EXPECT_EQ(text_of(cached()), body_);
}

TEST_F(FetchWeightsTest, DownloadsADamagedFileAgain) {
  fetch();
  write_file(cached(), std::string_view("half of i"));
  EXPECT_EQ(text_of(fetch()), body_);
  EXPECT_NE(
      said_.find("is damaged, so it is downloaded again"),
      std::string::npos);
}

TEST_F(FetchWeightsTest, ExplainsWhatToDoIfTheDownloadFails) {
  is_up_ = false;
  expect_error<DownloadError>(
      [&] { fetch(); },
      {"status 404", "or set TERN_WEIGHTS to a folder"});
}

TEST_F(FetchWeightsTest, UsesAGivenFolderWithoutANetwork) {
  options_.folder = temp_ / "folder";
  expect_error<DataError>(
      [&] { fetch(); },
      {given().string(), "there is no such file", "Download " + weights_.url});
  write_file(given(), body_);
  EXPECT_EQ(fetch(), given());
  write_file(given(), std::string_view("another"));
  expect_error<DataError>(
      [&] { fetch(); },
      {given().string(),
       "its name expects it to begin with " + hash_.substr(0, 8),
       "download it again"});
  options_.folder = temp_ / "none";
  expect_error<DataError>(
      [&] { fetch(); },
      {"is not a folder", "TERN_WEIGHTS"});
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(FetchWeightsTest, ReadsTheFolderFromTheEnvironment) {
  ::setenv("TERN_WEIGHTS", (temp_ / "folder").c_str(), 1);
  write_file(given(), body_);
  EXPECT_EQ(fetch(), given());
  EXPECT_EQ(weights_path(weights_, options_), given());
  ::unsetenv("TERN_WEIGHTS");
  EXPECT_EQ(weights_path(weights_, options_), cached());
}

TEST_F(FetchWeightsTest, ReportsAChecksumListOfADifferentFile) {
  fetch();
  write_file(list(), hash_ + "  other.pth\n");
  expect_error<DataError>(
      [&] { fetch(); },
      {list().string(), "has no checksum for '" + weights_.file_name()});
}

// Records the last progress, or throws.
struct Bar final : SinkImpl {
  void line(const std::string&) override {}
  void progress(const Progress& now) override {
    if (refuses) throw std::runtime_error("stop");
    last = now;
  }
  bool refuses = false;
  Progress last;
};

TEST_F(FetchWeightsTest, ShowsMegabytesInAProgressLine) {
  const auto bar = std::make_shared<Bar>();
  options_.sink = bar;
  weights_.url = server_.url("/net.pth");
  body_.resize(5'000'000, 'w');
  fetch();
  EXPECT_EQ(bar->last.batch, 5);
  EXPECT_EQ(bar->last.batches, 5);
  EXPECT_STREQ(bar->last.task, "MB of weights");
}

TEST_F(FetchWeightsTest, StopsIfTheSinkThrows) {
  const auto bar = std::make_shared<Bar>();
  bar->refuses = true;
  options_.sink = bar;
  EXPECT_THROW(fetch(), std::runtime_error);
  EXPECT_FALSE(fs::exists(cached()));
  bar->refuses = false;
  fetch();
  EXPECT_EQ(text_of(cached()), body_);
}

TEST(ShowBytes, UpdatesAFewTimesASecondAndAtTheEnd) {
  struct Bars final : SinkImpl {
    void line(const std::string&) override {}
    void progress(const Progress& now) override { all.push_back(now); }
    std::vector<Progress> all;
  };
  const auto bars = std::make_shared<Bars>();
  const ByteProgress show = show_bytes(bars, "MB downloaded");
  for (int64_t i = 0; i <= 50; ++i) show(1'000'000 * i, 50'000'000);
  ASSERT_GE(bars->all.size(), 2u);
  EXPECT_LE(bars->all.size(), 20u);
  EXPECT_EQ(bars->all.front().batch, 0);
  EXPECT_EQ(bars->all.back().batch, 50);
  EXPECT_STREQ(bars->all.back().task, "MB downloaded");

  // With an unknown total.
  bars->all.clear();
  const ByteProgress unknown = show_bytes(bars, "MB downloaded");
  for (int64_t i = 0; i <= 50; ++i) unknown(1'000'000 * i, 0);
  EXPECT_LE(bars->all.size(), 20u);
  EXPECT_EQ(bars->all.back().eta_seconds, 0);
}

TEST(Sha256InName, ParsesFileNamesOfPyTorch) {
  EXPECT_EQ(sha256_in_name("resnet18-f37072fd.pth"), "f37072fd");
  EXPECT_EQ(sha256_in_name("a/b-0123456789ab.safetensors"), "0123456789ab");
  EXPECT_EQ(sha256_in_name("resnet18-f37072f.pth"), "");
  EXPECT_EQ(sha256_in_name("resnet18-F37072FD.pth"), "");
  EXPECT_EQ(sha256_in_name("resnet18.pth"), "");
}

}  // namespace
}  // namespace tern::fetch_weights_test
