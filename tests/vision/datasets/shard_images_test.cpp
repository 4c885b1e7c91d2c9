#include "tern/vision/datasets/shard_images.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"

namespace tern::shard_images_test {
namespace {

namespace fs = std::filesystem;

class ShardImages : public testing::Test {
 protected:
  ShardImages() {
    for (int i = 0; i < 9; ++i) {
      const std::string name = std::to_string(i) + ".PNG";
      write_image(
          temp_ / "images" / (i % 3 == 0 ? "dog" : "cat") / name,
          8 + i);
    }
  }
  TempFolder temp_;
};

TEST_F(ShardImages, KeepsEveryFileWithItsClass) {
  const ShardedImages written =
      shard_images(temp_ / "images", temp_ / "out", {.max_samples = 4});
  EXPECT_EQ(written.images, 9);
  ASSERT_EQ(written.shards.size(), 3u);
  EXPECT_EQ(written.shards[2], temp_ / "out/train-000002.tar");
  const auto shards = TarShards::open(
      {(temp_ / "out/train-{000000..000002}.tar").string()},
      {.fields = {"png", "cls"}});
  EXPECT_EQ(shards->shard_sizes(), (std::vector<int64_t>{4, 4, 1}));
  std::map<std::vector<uint8_t>, int64_t> found;
  for (int64_t i = 0; i < shards->size(); ++i) {
    const TarSample sample = shards->sample(i);
    found[sample.bytes("png")] = sample.integer("cls");
    EXPECT_EQ(
        sample.key().substr(0, 3),
        written.classes[static_cast<size_t>(sample.integer("cls"))]);
  }
  EXPECT_EQ(found.size(), 9u);
  EXPECT_EQ(found.at(read_file(temp_ / "images/cat/4.PNG")), 0);
  EXPECT_EQ(found.at(read_file(temp_ / "images/dog/3.PNG")), 1);
}

TEST_F(ShardImages, GivesTheSameBytesForAnyNumberOfWorkers) {
  shard_images(temp_ / "images", temp_ / "a", {.max_samples = 2, .workers = 1});
  shard_images(temp_ / "images", temp_ / "b", {.max_samples = 2, .workers = 4});
  EXPECT_EQ(
      read_file(temp_ / "a/SHA256SUMS"),
      read_file(temp_ / "b/SHA256SUMS"));
  EXPECT_EQ(verify_shards(temp_ / "b"), 5);
  shard_images(temp_ / "images", temp_ / "c", {.max_samples = 2, .seed = 1});
  EXPECT_NE(
      read_file(temp_ / "a/SHA256SUMS"),
      read_file(temp_ / "c/SHA256SUMS"));
}

TEST_F(ShardImages, EndsAShardBeforeItGrowsTooLarge) {
  const auto size = fs::file_size(temp_ / "images/cat/8.PNG");
  const ShardedImages written = shard_images(
      temp_ / "images",
      temp_ / "out",
      {.max_bytes = static_cast<int64_t>(size)});
  EXPECT_EQ(written.shards.size(), 9u);
}

TEST_F(ShardImages, KeepsTheClassesOfTheFirstSet) {
  write_image(temp_ / "valid/dog/1.png");
  shard_images(temp_ / "images", temp_ / "out");
  shard_images(temp_ / "valid", temp_ / "out", {.name = "valid"});
  const auto valid =
      TarShards::open({(temp_ / "out/valid-000000.tar").string()});
  EXPECT_EQ(valid->sample(0).integer("cls"), 1);
  EXPECT_EQ(verify_shards(temp_ / "out"), 2);  // the sums of both
  write_image(temp_ / "other/cow/1.png");
  expect_error<DataError>(
      [&] { shard_images(temp_ / "other", temp_ / "out", {.name = "test"}); },
      {"cow", "training images do not have"});
}

TEST_F(ShardImages, RefusesToOverwriteAndBadOptions) {
  shard_images(temp_ / "images", temp_ / "out");
  expect_error<DataError>(
      [&] { shard_images(temp_ / "images", temp_ / "out"); },
      {"train-000000.tar", "is there already"});
  expect_error<c10::ValueError>(
      [&] { shard_images(temp_ / "images", temp_ / "x", {.name = "../a"}); },
      {"[shard_images]", "../a"});
  expect_error<c10::ValueError>(
      [&] { shard_images(temp_ / "images", temp_ / "x", {.max_samples = 0}); },
      {"max_samples is 0"});
}

TEST_F(ShardImages, FindsAFlippedBit) {
  const fs::path shard =
      shard_images(temp_ / "images", temp_ / "out").shards[0];
  auto bytes = read_file(shard);
  bytes[bytes.size() / 2] ^= 4;
  write_file(shard, bytes);
  expect_error<DataError>(
      [&] { verify_shards(temp_ / "out"); },
      {"train-000000.tar", "SHA256SUMS expects"});
  fs::remove(shard);
  expect_error<IoError>(
      [&] { verify_shards(temp_ / "out"); },
      {"train-000000"});
}

}  // namespace
}  // namespace tern::shard_images_test
