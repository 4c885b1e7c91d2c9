#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/data_bunch.h"
#include "tern/data/data_loader.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/k_folds.h"
#include "tern/data/sampler.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/data/support/sink.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/npy_bytes.h"
#include "tern/tests/support/number_shards.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::tar_dataset_test {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<int64_t>;

Numbers numbers_up_to(int64_t count) {
  Numbers numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

class TarData : public testing::Test {
 protected:
  std::shared_ptr<const TarDataset> numbers(
      const std::vector<int>& sizes,
      ShardSetOptions shards = {}) {
    paths_ = write_number_shards(temp_.path(), sizes);
    return TarDataset::from(
        paths_,
        {.decode = decode_fields({"cls"}, {"cls"}),
         .shards = std::move(shards)});
  }

  static Numbers read(const DataLoader& loader, int64_t first_batch = 0) {
    Numbers all;
    auto pass = loader.epoch(/*epoch=*/3, first_batch);
    while (const auto batch = pass.next()) {
      for (int64_t i = 0; i < batch->size(); ++i) {
        all.push_back(batch->targets[0][i].item<int64_t>());
      }
    }
    return all;
  }

  TempFolder temp_;
  std::vector<std::string> paths_;
};

TEST_F(TarData, YieldsEverySampleOfEveryShard) {
  const auto data = numbers({3, 1, 5});
  EXPECT_EQ(data->size(), 9);
  EXPECT_EQ(
      read(DataLoader(data, {.batch_size = 4, .workers = 2})),
      numbers_up_to(9));
  EXPECT_EQ(data->describe(3), paths_[1] + ", sample '0003'");
}

TEST_F(TarData, YieldsTheSameBatchesForAnyNumberOfWorkersAndFromAnyBatch) {
  const auto data = numbers({7, 7, 6});
  const auto order = std::make_shared<BufferedSampler>(
      data->shards()->shard_sizes(),
      /*buffer=*/5);
  const auto loader = [&](int64_t workers) {
    return DataLoader(
        data,
        {.batch_size = 3, .sampler = order, .workers = workers});
  };
  const Numbers expected = read(loader(0));
  for (const int64_t workers : {1, 8}) {
    EXPECT_EQ(read(loader(workers)), expected) << workers;
    EXPECT_EQ(
        read(loader(workers), /*first_batch=*/4),
        Numbers(expected.begin() + 12, expected.end()));
  }
}

TEST_F(TarData, DistributesSamplesOverRanksWithEqualSteps) {
  const auto data = numbers({7, 2, 5});
  Numbers all;
  std::vector<int64_t> steps;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto whole = std::make_shared<BufferedSampler>(
        data->shards()->shard_sizes(),
        /*buffer=*/4);
    const auto mine = std::make_shared<ShardedSampler>(
        whole,
        ShardOptions{.rank = rank, .world_size = 3, .batch_size = 2});
    const DataLoader loader(data, {.batch_size = 2, .sampler = mine});
    const Numbers part = read(loader);
    steps.push_back(loader.size());
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 3, 3}));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all, numbers_up_to(14));  // 2 of the last 6 positions are repeats
}

TEST_F(TarData, MixesNeighborsAndLosesNone) {
  const BufferedSampler order({50, 50, 50, 50}, /*buffer=*/20);
  const Numbers first = order.indices(1, 0);
  Numbers sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, numbers_up_to(200));
  EXPECT_EQ(order.indices(1, 0), first);
  EXPECT_NE(order.indices(1, 1), first);
  EXPECT_NE(order.indices(2, 0), first);
  // The first samples come from the shard that was drawn first.
  const int64_t shard = first[0] / 50;
  for (int i = 0; i < 30; ++i) EXPECT_EQ(first[i] / 50, shard);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.begin() + 30));
  expect_error<c10::ValueError>(
      [] { BufferedSampler({1}, 0); },
      {"buffer has 0 samples"});
}

TEST_F(TarData, IsNotMixedInFoldsWithAnotherDecoder) {
  const auto mine = numbers({3, 2}), other = TarDataset::from(paths_);
  EXPECT_EQ(mine->why_no_folds(*mine), "");
  EXPECT_EQ(other->why_no_folds(*TarDataset::from(paths_)), "");
  const auto folds_of = [&](std::shared_ptr<const Dataset> valid) {
    return k_folds(
        DataBunch::create(mine, std::move(valid), {.batch_size = 2}),
        2);
  };
  EXPECT_EQ(folds_of(mine).size(), 2u);
  for (const auto& valid : {other, numbers({3, 2})}) {
    expect_error<c10::ValueError>(
        [&] { folds_of(valid); },
        {"[k_folds]", "TarDataset", "`decode`", "BatchContext::training"});
  }
}

TEST_F(TarData, DecodesNpyClsAndBytes) {
  TarWriter tar(temp_ / "a.tar");
  const float values[] = {1.5f, -2.f};
  tar.add(
      "x/1.npy",
      npy_bytes(
          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
          std::string(reinterpret_cast<const char*>(values), sizeof values)));
  tar.add("x/1.cls", "4");
  tar.add("x/1.json", R"({"a": 1})");
  tar.finish();
  const auto data = TarDataset::from({(temp_ / "a.tar").string()});
  const Batch batch = data->get_batch({0}, {});
  EXPECT_TRUE(batch.inputs[0].equal(torch::tensor({{1.5f, -2.f}})));
  EXPECT_TRUE(batch.targets[0].equal(torch::tensor({int64_t{4}})));
  const TarSample sample = data->shards()->sample(0);
  EXPECT_EQ(sample.key(), "x/1");
  EXPECT_EQ(sample.text("JSON"), R"({"a": 1})");
  EXPECT_EQ(sample.tensor("json").sizes(), (c10::IntArrayRef{1, 8}));
  expect_error<DataError>(
      [&] { sample.bytes("jpg"); },
      {"a.tar, sample 'x/1'", "no field 'jpg'", "'npy', 'cls', 'json'"});
  expect_error<DataError>(
      [&] { sample.integer("json"); },
      {"expected a whole number"});
}

TEST_F(TarData, NamesASampleThatLacksAField) {
  expect_error<DataError>(
      [&] {
        numbers({2}, {.fields = {"cls", "jpg"}});
      },
      {"s-0.tar, sample '0000'", "'jpg'"});
}

TEST_F(TarData, NamesATruncatedShard) {
  write_number_shards(temp_.path(), {4, 4});
  fs::resize_file(temp_ / "s-1.tar", 2048);
  expect_error<DataError>(
      [&] { TarDataset::from({(temp_ / "s-{0..1}.tar").string()}); },
      {"s-1.tar", "truncated", "last complete file is '0004.txt'"});
}

TEST_F(TarData, SkipsBadShardsWithAWarningOnRequest) {
  const auto paths = write_number_shards(temp_.path(), {4, 4, 4});
  fs::resize_file(paths[0], 3000);
  fs::remove(paths[2]);
  std::vector<std::string> said;
  const ShardSetOptions skipping = {
      .skip_bad_shards = true,
      .sink = [&](const std::string& line) { said.push_back(line); }};
  const auto data = TarDataset::from(paths, {.shards = skipping});
  EXPECT_EQ(data->size(), 4);
  EXPECT_EQ(data->shards()->sample(0).key(), "0004");
  ASSERT_EQ(said.size(), 2u);
  EXPECT_TRUE(said[0].starts_with("warning: a shard was skipped: ")) << said[0];
  EXPECT_NE(said[0].find("s-0.tar"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("s-2.tar"), std::string::npos) << said[1];
  fs::remove(paths[1]);
  expect_error<DataError>(
      [&] { TarDataset::from(paths, {.shards = skipping}); },
      {"all other shards, 3 in total"});
}

TEST_F(TarData, DetectsAShardThatWasChangedOrReplaced) {
  const auto data = numbers({3, 3});
  EXPECT_EQ(data->get_batch({5}, {}).targets[0].item<int64_t>(), 5);
  fs::resize_file(paths_[1], 1024);
  expect_error<DataError>(
      [&] { data->get_batch({5}, {}); },
      {"s-1.tar", "was changed or replaced"});
  // This shard is not open yet, so its name refers to the new file.
  fs::copy_file(paths_[0], temp_ / "copy.tar");
  fs::rename(temp_ / "copy.tar", paths_[0]);
  expect_error<DataError>(
      [&] { data->get_batch({0}, {}); },
      {"s-0.tar", "was changed or replaced"});
}

TEST_F(TarData, NamesAShardThatVanishes) {
  const auto data = numbers({3, 3});
  fs::remove(paths_[1]);
  DataLoader loader(data, {.batch_size = 2, .workers = 1});
  expect_error<DataError>([&] { read(loader); }, {"s-1.tar", "No such file"});
}

TEST_F(TarData, CanHaveMoreShardsThanOpenFiles) {
  const auto data = numbers(std::vector<int>(300, 1));
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(
        read(DataLoader(data, {.batch_size = 10, .workers = 3})),
        numbers_up_to(300));
  }
  EXPECT_LT(open_files() - before, 150);
}

TEST_F(TarData, RejectsAShardWithoutASample) {
  TarWriter(temp_ / "a.tar").finish();
  expect_error<DataError>(
      [&] { TarDataset::from({(temp_ / "a.tar").string()}); },
      {"a.tar", "contains no sample"});
}

}  // namespace
}  // namespace tern::tar_dataset_test
