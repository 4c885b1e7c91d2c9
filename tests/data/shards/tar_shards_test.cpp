#include "tern/data/shards/tar_shards.h"

#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/download/download.h"
#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/number_shards.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::tar_shards_test {
namespace {

using Names = std::vector<std::string>;

std::string sha_of(const std::string& text) {
  return sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(ShardFiles, ExpandsRangesAndChoices) {
  EXPECT_EQ(expand_shards({"a.tar"}), Names{"a.tar"});
  EXPECT_EQ(
      expand_shards({"t-{08..10}.tar", "v.tar"}),
      (Names{"t-08.tar", "t-09.tar", "t-10.tar", "v.tar"}));
  EXPECT_EQ(
      expand_shards({"{a,bc}/{0..1}.tar"}),
      (Names{"a/0.tar", "a/1.tar", "bc/0.tar", "bc/1.tar"}));
}

TEST(ShardFiles, RejectsInvalidPatterns) {
  for (const char* bad :
       {"a-{0..9.tar",
        "a-{9..0}.tar",
        "a-{x..y}.tar",
        "a-{..}.tar",
        "a-{0..99999999999}.tar"}) {
    expect_error<c10::ValueError>([&] { expand_shards({bad}); }, {bad});
  }
  expect_error<c10::ValueError>([] { expand_shards({}); }, {"no shard"});
}

TEST(ShardFiles, DownloadsAShardOnceAndRetries) {
  const TempFolder temp;
  const HttpServer server([](const HttpServer::Request& request) {
    if (request.number == 0) {
      return HttpServer::response("503 Service Unavailable", "", "");
    }
    return HttpServer::ok("of " + request.path);
  });
  const ShardSetOptions options = {.cache = temp.path()};
  const auto file = fetch_shard(server.url("/x/a.tar?key=1"), options);
  EXPECT_EQ(file.filename(), "a.tar");
  EXPECT_EQ(fetch_shard(server.url("/x/a.tar?key=1"), options), file);
  EXPECT_EQ(server.requests().size(), 2u);
  // A different shard with the same name is stored separately.
  EXPECT_NE(fetch_shard(server.url("/y/a.tar"), options), file);
  EXPECT_EQ(fetch_shard("/some/file.tar", options), "/some/file.tar");
}

// If a server sends no length, a truncated file appears to be complete.
TEST(ShardFiles, DownloadsATruncatedShardAgain) {
  const TempFolder temp;
  write_number_shards(temp.path(), {20});
  const std::vector<uint8_t> bytes = read_file(temp / "s-0.tar");
  const std::string whole(bytes.begin(), bytes.end());
  std::atomic<int> cut = 1;  // number of truncated responses
  const HttpServer server([&](const HttpServer::Request&) {
    const std::string head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    return head + (cut-- > 0 ? whole.substr(0, 9000) : whole);
  });
  const auto options = [&](const char* cache) {
    return ShardSetOptions{.cache = temp / cache};
  };
  EXPECT_EQ(TarShards::open({server.url("/a.tar")}, options("a"))->size(), 20);
  EXPECT_EQ(server.requests().size(), 2u);
  // Truncation twice in a row is an error, but later calls succeed.
  cut = 2;
  expect_error<DataError>(
      [&] { TarShards::open({server.url("/a.tar")}, options("b")); },
      {"a.tar"});
  EXPECT_EQ(TarShards::open({server.url("/a.tar")}, options("b"))->size(), 20);
  // A truncated file that an older version left in the cache.
  const auto kept = fetch_shard(server.url("/a.tar"), options("b"));
  std::filesystem::resize_file(kept, 5000);
  EXPECT_EQ(TarShards::open({server.url("/a.tar")}, options("b"))->size(), 20);
  // Files of the user are never removed.
  std::filesystem::resize_file(temp / "s-0.tar", 5000);
  EXPECT_THROW(TarShards::open({(temp / "s-0.tar").string()}), DataError);
  EXPECT_TRUE(std::filesystem::exists(temp / "s-0.tar"));
}

TEST(ShardFiles, ExplainsWhereTheNameOfASampleEnds) {
  const TempFolder temp;
  TarWriter tar(temp / "a.tar");
  tar.add("cat.v1.jpg", std::string("x"));
  tar.add("cat.v1.cls", std::string("1"));
  tar.finish();
  expect_error<DataError>(
      [&] {
        TarShards::open({(temp / "a.tar").string()}, {.fields = {"jpg"}});
      },
      {"has no field 'jpg', only 'v1.jpg', 'v1.cls'", "ends at its first dot"});
}

TEST(ShardFiles, VerifiesTheChecksumsOfShards) {
  const TempFolder temp;
  const HttpServer server(
      [](const HttpServer::Request&) { return HttpServer::ok("bytes"); });
  ShardSetOptions options = {
      .checksums = {{"a.tar", sha_of("bytes")}, {"b.tar", sha_of("others")}},
      .cache = temp.path(),
      .retries = 0};
  EXPECT_EQ(read_file(fetch_shard(server.url("/a.tar"), options)).size(), 5u);
  expect_error<DownloadError>(
      [&] { fetch_shard(server.url("/b.tar"), options); },
      {"/b.tar", "SHA-256"});
  expect_error<DataError>(
      [&] { fetch_shard(server.url("/c.tar"), options); },
      {"not in the list of checksums"});
  // Local files are checked too.
  for (const char* name : {"a.tar", "b.tar", "c.tar"}) {
    write_file(temp / name, "bytes");
  }
  EXPECT_EQ(fetch_shard(temp / "a.tar", options), temp / "a.tar");
  expect_error<DataError>(
      [&] { fetch_shard(temp / "b.tar", options); },
      {"b.tar", sha_of("bytes"), "expected " + sha_of("others")});
  expect_error<DataError>(
      [&] { fetch_shard(temp / "c.tar", options); },
      {"not in the list of checksums"});
}

}  // namespace
}  // namespace tern::tar_shards_test
