#include "tern/data/shards/tar_shards.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/download/download.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
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

TEST(ShardFiles, RefusesPatternsThatAreNone) {
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

TEST(ShardFiles, FetchesAShardOnceAndTriesAgain) {
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
  // Another shard of the same name is kept apart.
  EXPECT_NE(fetch_shard(server.url("/y/a.tar"), options), file);
  EXPECT_EQ(fetch_shard("/some/file.tar", options), "/some/file.tar");
}

TEST(ShardFiles, ChecksTheSumOfWhatItFetches) {
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
  // And of what lies here.
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
