#include "tern/data/download/download.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::download_test {
namespace {

namespace fs = std::filesystem;
using Kind = DownloadError::Kind;
using Request = HttpServer::Request;

const std::string& content() {
  static const std::string* const text = [] {
    auto* made = new std::string;
    for (int i = 0; i < 100'000; ++i) *made += std::to_string(i * 7919 % 9973);
    return made;
  }();
  return *text;
}

std::string sha_of(const std::string& text) {
  return sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

DownloadOptions checked() {
  return {
      .sha256 = sha_of(content()),
      .bytes = static_cast<int64_t>(content().size()),
      .retry_seconds = 0.001};
}

std::string text_of(const fs::path& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

Kind kind_of(
    const std::string& url,
    const fs::path& file,
    const DownloadOptions& options) {
  try {
    download(url, file, options);
  } catch (const DownloadError& error) {
    return error.kind();
  }
  ADD_FAILURE() << "expected a DownloadError";
  return {};
}

std::string give_range(const Request& request) {
  return HttpServer::range(content(), request.offset);
}

// Announces the whole file but closes the connection halfway.
std::string give_half(const Request& request) {
  const std::string whole = give_range(request);
  return whole.substr(0, whole.size() / 2);
}

TEST(Download, DownloadsAFileAndReportsProgress) {
  const TempFolder temp;
  HttpServer server(give_range);
  DownloadOptions options = checked();
  int64_t last = 0, last_total = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done, last_total = total;
  };
  download(server.url("/a.bin"), temp / "new/folder/a.bin", options);
  EXPECT_EQ(text_of(temp / "new/folder/a.bin"), content());
  EXPECT_EQ(last, options.bytes);
  EXPECT_EQ(last_total, options.bytes);
  EXPECT_EQ(temp.entries(), 3);
}

TEST(Download, DownloadsNothingIfTheFileExists) {
  const TempFolder temp;
  HttpServer server(give_range);
  write_file(temp / "a", content());
  download(server.url("/a"), temp / "a", checked());
  EXPECT_TRUE(server.requests().empty());
}

TEST(Download, ReplacesAFileWithDifferentContent) {
  const TempFolder temp;
  HttpServer server(give_range);
  write_file(temp / "a", "old");
  download(server.url("/a"), temp / "a", checked());
  EXPECT_EQ(text_of(temp / "a"), content());
}

TEST(Download, ReadsFileUrls) {
  const TempFolder temp;
  write_file(temp / "source", content());
  write_file(temp / "copy.part", content().substr(0, 1000));
  const std::string url = "file://" + (temp / "source").string();
  download(url, temp / "copy", checked());
  EXPECT_EQ(text_of(temp / "copy"), content());
  expect_error<DownloadError>(
      [&] { download(url + "x", temp / "b"); },
      {"no such file"});
}

TEST(Download, ContinuesAfterABrokenConnection) {
  const TempFolder temp;
  HttpServer server([](const Request& request) {
    return request.number < 2 ? give_half(request) : give_range(request);
  });
  download(server.url("/a"), temp / "a", checked());
  EXPECT_EQ(text_of(temp / "a"), content());
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_GT(requests[1].offset, 0u);
  EXPECT_GT(requests[2].offset, requests[1].offset);
}

TEST(Download, ContinuesWhereAnEarlierCallStopped) {
  const TempFolder temp;
  HttpServer server([](const Request& request) {
    return request.number == 0 ? give_half(request) : give_range(request);
  });
  DownloadOptions options = checked();
  options.retries = 0;
  EXPECT_EQ(kind_of(server.url("/a"), temp / "a", options), Kind::unreachable);
  EXPECT_FALSE(fs::exists(temp / "a"));
  EXPECT_TRUE(fs::exists(temp / "a.part"));
  download(server.url("/a"), temp / "a", options);
  EXPECT_EQ(text_of(temp / "a"), content());
  EXPECT_GT(server.requests()[1].offset, 0u);
  EXPECT_EQ(temp.entries(), 1);
}

TEST(Download, StopsWhenProgressThrowsAndContinuesLater) {
  const TempFolder temp;
  HttpServer server(give_range);
  DownloadOptions options = checked();
  options.progress = [](int64_t, int64_t) { throw std::logic_error("stop"); };
  EXPECT_EQ(
      error_of<std::logic_error>(
          [&] { download(server.url("/a"), temp / "a", options); }),
      "stop");
  EXPECT_FALSE(fs::exists(temp / "a"));
  download(server.url("/a"), temp / "a", checked());
  EXPECT_EQ(text_of(temp / "a"), content());
}

struct PartCase {
  const char* name;
  std::string part;
};

TEST(Download, IsNotMisledByLeftoverParts) {
  const std::vector<PartCase> cases = {
      {"of a different version", std::string(1000, 'x')},
      {"as long as the file", std::string(content().size(), 'x')},
      {"longer than the file", content() + "x"},
      {"complete", content()},
      {"empty", ""},
  };
  for (const PartCase& c : cases) {
    const TempFolder temp;
    HttpServer server(give_range);
    write_file(temp / "a.part", c.part);
    download(server.url("/a"), temp / "a", checked());
    EXPECT_EQ(text_of(temp / "a"), content()) << c.name;
    EXPECT_EQ(temp.entries(), 1) << c.name;
  }
}

TEST(Download, StartsOverIfTheServerSupportsNoRanges) {
  const TempFolder temp;
  HttpServer server([](const Request&) { return HttpServer::ok(content()); });
  write_file(temp / "a.part", content().substr(0, 1000));
  download(server.url("/a"), temp / "a", checked());
  EXPECT_EQ(text_of(temp / "a"), content());
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(Download, StartsOverWithoutAChecksum) {
  const TempFolder temp;
  HttpServer server(give_range);
  write_file(temp / "a.part", "of who knows what");
  download(server.url("/a"), temp / "a");
  EXPECT_EQ(text_of(temp / "a"), content());
  EXPECT_EQ(server.requests()[0].offset, 0u);
}

TEST(Download, KeepsNoFileWithWrongContent) {
  const TempFolder temp;
  HttpServer server([](const Request& request) {
    std::string text = content();
    if (request.path == "/flipped") text[500] ^= 1;
    if (request.path == "/short") text = "sign in to this network";
    if (request.path == "/long") text += text;
    return HttpServer::ok(text);
  });
  for (const char* path : {"/flipped", "/short", "/long"}) {
    EXPECT_EQ(
        kind_of(server.url(path), temp / "a", checked()),
        Kind::wrong_content);
    EXPECT_EQ(temp.entries(), 0) << path;
  }
  DownloadOptions options = checked();
  expect_error<DownloadError>(
      [&] { download(server.url("/flipped"), temp / "a", options); },
      {"expected " + options.sha256});
  expect_error<DownloadError>(
      [&] { download(server.url("/short"), temp / "a", options); },
      {"gave 23 bytes; expected " + std::to_string(options.bytes)});
}

TEST(Download, RetriesIfTheServerIsBusyButNotIfTheFileIsMissing) {
  const TempFolder temp;
  HttpServer server([](const Request& request) {
    if (request.path == "/none") {
      return HttpServer::response("404 Not Found", "", "gone");
    }
    return request.number < 2
               ? HttpServer::response("503 Service Unavailable", "", "busy")
               : give_range(request);
  });
  download(server.url("/busy"), temp / "a", checked());
  EXPECT_EQ(server.requests().size(), 3u);
  expect_error<DownloadError>(
      [&] { download(server.url("/none"), temp / "b", checked()); },
      {"status 404"});
  EXPECT_EQ(server.requests().size(), 4u);
  EXPECT_FALSE(fs::exists(temp / "b"));
}

TEST(Download, RejectsInsecureSchemesAndRedirectsToThem) {
  const TempFolder temp;
  for (const char* url :
       {"http://example.com/a",
        "http://127.0.0.1@example.com/a",
        "http://127.0.0.1.example.com/a",
        "ftp://example.com/a",
        "gopher://x/a"}) {
    expect_error<DownloadError>(
        [&] { download(url, temp / "a"); },
        {"use https"});
  }
  expect_error<DownloadError>(
      [&] { download("", temp / "a"); },
      {"is not a URL"});

  std::string target;
  HttpServer server([&](const Request& request) {
    return request.path == "/a" ? HttpServer::response(
                                      "302 Found",
                                      "Location: " + target + "\r\n",
                                      "")
                                : give_range(request);
  });
  for (const std::string& to :
       {server.url("/b"), std::string("file:///etc/passwd")}) {
    target = to;
    expect_error<DownloadError>(
        [&] { download(server.url("/a"), temp / "a"); },
        {"expected https"});
  }
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_FALSE(fs::exists(temp / "a"));
}

TEST(Download, ExplainsWhatToDoWithoutInternetAccess) {
  const TempFolder temp;
  int port = 0;
  {
    const HttpServer server(give_range);
    port = server.port();
  }
  DownloadOptions options = checked();
  options.retries = 1;
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/a";
  EXPECT_EQ(kind_of(url, temp / "a", options), Kind::unreachable);
  expect_error<DownloadError>(
      [&] { download(url, temp / "a", options); },
      {"Check the network"});
}

TEST(Download, ReportsAFolderThatCannotBeWritten) {
  const TempFolder temp;
  HttpServer server(give_range);
  write_file(temp / "file", "x");
  expect_error<IoError>(
      [&] { download(server.url("/a"), temp / "file/a", checked()); },
      {"file"});
}

TEST(Download, DownloadsOnceForConcurrentCalls) {
  const TempFolder temp;
  HttpServer server(give_range);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&] { download(server.url("/a"), temp / "a", checked()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(text_of(temp / "a"), content());
  EXPECT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(temp.entries(), 1);
}

}  // namespace
}  // namespace tern::download_test
