#include "tern/data/tar_stream.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/message.h"
#include "tern/data/stream_loader.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/number_shards.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::tar_stream_test {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<int64_t>;

class Streaming : public testing::Test {
 protected:
  std::shared_ptr<const TarStream> numbers(
      const std::vector<int>& sizes,
      TarStreamOptions options = {}) {
    paths_ = write_number_shards(temp_.path(), sizes);
    options.decode = decode_fields({"cls"}, {"cls"});
    return TarStream::from(paths_, std::move(options));
  }

  static Numbers
  read(const StreamLoader& loader, int64_t first_batch = 0, int64_t epoch = 0) {
    Numbers all;
    auto pass = loader.epoch(epoch, first_batch);
    while (const auto batch = pass.next()) {
      for (int64_t i = 0; i < batch->size(); ++i) {
        all.push_back(batch->targets[0][i].item<int64_t>());
      }
    }
    EXPECT_FALSE(pass.next());
    return all;
  }

  static Numbers sorted(Numbers numbers) {
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  static Numbers numbers_up_to(int64_t count) {
    Numbers numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), int64_t{0});
    return numbers;
  }

  TempFolder temp_;
  std::vector<std::string> paths_;
};

TEST_F(Streaming, TakesTurnsBetweenLanes) {
  const auto stream = numbers({2, 3, 1});
  EXPECT_EQ(
      read(StreamLoader(stream, {.batch_size = 2, .lanes = 2, .workers = 0})),
      (Numbers{0, 2, 1, 3, 5, 4}));
  EXPECT_EQ(
      read(StreamLoader(stream, {.batch_size = 2, .lanes = 1, .workers = 0})),
      numbers_up_to(6));
}

TEST_F(Streaming, GivesTheSameBatchesForAnyNumberOfWorkersAndFromAnywhere) {
  const auto stream =
      numbers({9, 4, 7, 8, 1, 6}, {.shuffle = true, .shuffle_buffer = 5});
  const auto loader = [&](int64_t workers) {
    return StreamLoader(
        stream,
        {.batch_size = 4, .lanes = 3, .workers = workers, .prefetch = 2});
  };
  const Numbers expected = read(loader(0));
  EXPECT_EQ(sorted(expected), numbers_up_to(35));
  EXPECT_FALSE(std::is_sorted(expected.begin(), expected.end()));
  EXPECT_NE(read(loader(0), 0, /*epoch=*/1), expected);
  for (const int64_t workers : {0, 1, 2, 8}) {
    for (const int64_t first_batch : {0, 3, 8, 9}) {
      const int64_t begin = std::min<int64_t>(4 * first_batch, 35);
      EXPECT_EQ(
          read(loader(workers), first_batch),
          Numbers(expected.begin() + begin, expected.end()))
          << workers << " " << first_batch;
    }
  }
}

TEST_F(Streaming, GivesEachLoopTheNextPass) {
  StreamLoader loader(
      numbers({9, 4, 7}, {.shuffle = true, .shuffle_buffer = 5}),
      {.batch_size = 4, .lanes = 2, .workers = 2, .prefetch = 2});
  for (const int64_t epoch : {0, 1}) {
    Numbers seen;
    for (const Batch& batch : loader) {
      for (int64_t i = 0; i < batch.size(); ++i) {
        seen.push_back(batch.targets[0][i].item<int64_t>());
      }
    }
    EXPECT_EQ(seen, read(loader, 0, epoch));
  }
}

TEST_F(Streaming, DividesShardsOverRanks) {
  const auto stream = numbers({3, 3, 3, 3, 3, 3, 3}, {.shuffle = true});
  Numbers all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Numbers part = read(StreamLoader(
        stream,
        {.batch_size = 4, .lanes = 2, .rank = rank, .world_size = 3}));
    EXPECT_LE(part.size(), 9u);
    EXPECT_GE(part.size(), 6u);
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_EQ(sorted(all), numbers_up_to(21));
}

TEST_F(Streaming, RefusesFewerShardsThanRanksAndHasMoreLanesThanShards) {
  const auto stream = numbers({3, 3});
  EXPECT_EQ(
      sorted(read(StreamLoader(stream, {.lanes = 8, .workers = 8}))),
      numbers_up_to(6));
  const StreamLoader third(stream, {.rank = 2, .world_size = 3});
  expect_error<c10::ValueError>(
      [&] { third.epoch(0); },
      {"2 shards for 3 processes", "1 of them", "resample"});
}

TEST_F(Streaming, ResamplesWithoutEndAndOtherwiseOnEachRank) {
  const auto stream = numbers({4, 4}, {.shuffle = true, .resample = true});
  const auto loader = [&](int64_t rank) {
    return StreamLoader(
        stream,
        {.batch_size = 10,
         .batches = 20,
         .lanes = 2,
         .rank = rank,
         .world_size = 3});
  };
  const Numbers first = read(loader(0));
  EXPECT_EQ(first.size(), 200u);
  EXPECT_EQ(read(loader(2)).size(), 200u);  // more ranks than shards
  EXPECT_NE(read(loader(1)), first);
  EXPECT_EQ(
      read(loader(0), /*first_batch=*/15),
      Numbers(first.begin() + 150, first.end()));
  expect_error<c10::ValueError>(
      [&] { StreamLoader(stream, {}); },
      {"no end", "`batches` is 0"});
}

TEST_F(Streaming, CutsAnEpochAndDropsTheShortBatch) {
  const auto stream = numbers({5, 6});
  EXPECT_EQ(
      read(StreamLoader(stream, {.batch_size = 4, .drop_last = true})).size(),
      8u);
  EXPECT_EQ(
      read(StreamLoader(stream, {.batch_size = 4, .batches = 1})).size(),
      4u);
}

TEST_F(Streaming, EndsWithAnErrorThatNamesShardOrSample) {
  auto stream = numbers({40, 40});
  fs::resize_file(paths_[1], 4096);
  for (const int64_t workers : {0, 2}) {
    const StreamLoader loader(stream, {.batch_size = 4, .workers = workers});
    auto pass = loader.epoch(0);
    expect_error<DataError>(
        [&] {
          while (pass.next()) {
          }
        },
        {"s-1.tar", "cut off"});
    EXPECT_FALSE(pass.next());
  }
  stream = TarStream::from(
      {paths_[0]},
      {.decode = [](const TarSample& sample, const BatchContext&, SampleRng) {
        if (sample.key() == "0007") throw std::runtime_error("no seven");
        return Batch{{torch::zeros({1})}, {}};
      }});
  expect_error<DataError>(
      [&] {
        auto pass = StreamLoader(stream).epoch(0);
        while (pass.next()) {
        }
      },
      {"s-0.tar, sample '0007'", "no seven"});
}

TEST_F(Streaming, LeavesOutBadShardsWhereThatIsAllowed) {
  auto stream = numbers({3, 3, 3}, {.shards = {.skip_bad_shards = true}});
  fs::resize_file(paths_[0], 1024);
  fs::remove(paths_[2]);
  set_message_handler([](const std::string&) {});
  EXPECT_EQ(
      sorted(read(StreamLoader(stream, {.workers = 2}))),
      (Numbers{3, 4, 5}));
  stream = TarStream::from(
      {paths_[0], paths_[2]},
      {.resample = true, .shards = {.skip_bad_shards = true}});
  auto pass = StreamLoader(stream, {.batches = 1, .workers = 0}).epoch(0);
  expect_error<DataError>([&] { pass.next(); }, {"damaged or gone"});
  set_message_handler(nullptr);
}

TEST_F(Streaming, StopsInTheMiddleWithoutWaiting) {
  const auto stream = numbers({50, 50}, {.resample = true});
  const StreamLoader loader(
      stream,
      {.batch_size = 2, .batches = 1000, .workers = 2});
  auto pass = loader.epoch(0);
  EXPECT_EQ(pass.next()->size(), 2);
}

TEST_F(Streaming, GivesUpADownloadThatNobodyWaitsFor) {
  write_number_shards(temp_.path(), {5, 5});
  const HttpServer server([&](const HttpServer::Request& request) {
    const auto bytes = read_file(temp_.path() / request.path.substr(1));
    std::string reply = HttpServer::ok({bytes.begin(), bytes.end()});
    if (request.number > 0) reply.resize(reply.size() / 2);  // and it hangs up
    return reply;
  });
  const auto stream = TarStream::from(
      {server.url("/s-{0..1}.tar")},
      {.decode = decode_fields({"cls"}, {"cls"}),
       .shards = {.cache = temp_ / "cache", .retries = 100}});
  const StreamLoader loader(
      stream,
      {.batch_size = 2, .lanes = 1, .workers = 1});
  auto pass = loader.epoch(0);
  EXPECT_EQ(pass.next()->size(), 2);
}

TEST_F(Streaming, ReadsShardsFromAWebServerThatStumbles) {
  write_number_shards(temp_.path(), {5, 5, 5});
  const HttpServer server([&](const HttpServer::Request& request) {
    if (request.number % 2 == 0) {
      return HttpServer::response("503 Service Unavailable", "", "");
    }
    const auto bytes = read_file(temp_.path() / request.path.substr(1));
    return HttpServer::ok({bytes.begin(), bytes.end()});
  });
  const auto stream = TarStream::from(
      {server.url("/s-{0..2}.tar")},
      {.decode = decode_fields({"cls"}, {"cls"}),
       .shards = {.cache = temp_ / "cache"}});
  const StreamLoader loader(stream, {.lanes = 1, .workers = 1});
  EXPECT_EQ(read(loader), numbers_up_to(15));
  EXPECT_EQ(read(loader), numbers_up_to(15));  // from the cache
  EXPECT_EQ(server.requests().size(), 6u);
}

}  // namespace
}  // namespace tern::tar_stream_test
