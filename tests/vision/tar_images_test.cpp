#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/shard_images.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/get_transforms.h"

namespace tern::tar_images_test {
namespace {

class TarImageData : public testing::Test {
 protected:
  TarImageData() {
    for (int i = 0; i < 20; ++i) {
      const std::string name = std::to_string(10 + i) + ".png";
      const char* const kind = i % 2 == 0 ? "cat" : "dog";
      write_image(temp_ / "train" / kind / name, 20 + i, 30);
      if (i < 6) write_image(temp_ / "valid" / kind / name, 30, 20 + i);
    }
    // The order of the folder, so that samples can be compared.
    shard_images(
        temp_ / "train",
        temp_ / "tar",
        {.max_samples = 6, .shuffle = false});
    shard_images(
        temp_ / "valid",
        temp_ / "tar",
        {.name = "valid", .shuffle = false});
  }

  std::string tar(const std::string& name) const {
    return (temp_ / "tar" / name).string();
  }
  DataBunch from_tar(
      ImageTar tar_options = {},
      ImageDataBunchOptions options = {}) const {
    return ImageDataBunch::from_tar(
        {tar("train-{000000..000003}.tar")},
        {tar("valid-000000.tar")},
        tar_options,
        options);
  }

  TempFolder temp_;
};

std::vector<Batch> all_batches(const DataLoader& loader, int64_t first = 0) {
  std::vector<Batch> batches;
  auto pass = loader.epoch(/*epoch=*/1, first);
  while (auto batch = pass.next()) batches.push_back(std::move(*batch));
  return batches;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].inputs[0].equal(b[i].inputs[0])) << i;
    EXPECT_TRUE(a[i].targets[0].equal(b[i].targets[0])) << i;
  }
}

TEST_F(TarImageData, GivesTheBatchesOfTheFolderWithTransforms) {
  ImageDataBunchOptions options = {
      .size = ImageSize{16, 16},
      .transforms = get_transforms(),
      .batch_size = 4,
      .workers = 2};
  const DataBunch folder = ImageDataBunch::from_folder(temp_.path(), options);
  options.workers = 1;
  const DataBunch shards = from_tar({}, options);
  EXPECT_EQ(shards.classes, (std::vector<std::string>{"cat", "dog"}));
  expect_equal(all_batches(*folder.train), all_batches(*shards.train));
  expect_equal(all_batches(*folder.valid), all_batches(*shards.valid));
  expect_equal(all_batches(*folder.train, 3), all_batches(*shards.train, 3));
}

TEST_F(TarImageData, MixesNeighboursOnlyWhereThatIsWanted) {
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .batch_size = 2,
      .workers = 0};
  const DataBunch data = from_tar({.shuffle_buffer = 3}, options);
  const auto order = data.train->sampler()->indices(1, 0);
  ASSERT_EQ(order.size(), 20u);
  // Shards hold 6, 6, 6 and 2.
  EXPECT_EQ(order[0] / 6, order[1] / 6);
  EXPECT_EQ(all_batches(*data.train).size(), 10u);
}

TEST_F(TarImageData, SplitsAtRandomWithoutShardsToCheckWith) {
  const DataBunch data = ImageDataBunch::from_tar(
      {tar("train-{000000..000003}.tar")},
      {},
      {},
      {.valid_pct = 0.25, .size = ImageSize{8, 8}, .batch_size = 5});
  EXPECT_EQ(data.train->dataset().size(), 15);
  EXPECT_EQ(data.valid->dataset().size(), 5);
}

TEST_F(TarImageData, TellsItsSinkOfAShardThatIsLeftOut) {
  std::filesystem::resize_file(tar("train-000001.tar"), 3000);
  std::string of_bunch, of_shards;
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .sink = [&](const std::string& line) { of_bunch += line; }};
  from_tar({.shards = {.skip_bad_shards = true}}, options);
  EXPECT_NE(of_bunch.find("train-000001.tar"), std::string::npos) << of_bunch;
  of_bunch.clear();
  const ShardSetOptions shards = {
      .skip_bad_shards = true,
      .sink = [&](const std::string& line) { of_shards += line; }};
  from_tar({.shards = shards}, options);
  EXPECT_NE(of_shards.find("train-000001.tar"), std::string::npos) << of_shards;
  EXPECT_EQ(of_bunch, "");
}

TEST_F(TarImageData, PresizesLikeAFolder) {
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .batch_size = 4,
      .workers = 0};
  DataBunch folder = ImageDataBunch::from_folder(temp_.path(), options);
  DataBunch shards = from_tar({}, options);
  folder.presize(temp_ / "folder_packs", {10, 10});
  shards.presize(temp_ / "tar_packs", {10, 10});
  expect_equal(all_batches(*folder.train), all_batches(*shards.train));
}

TEST_F(TarImageData, NamesTheSampleThatIsBad) {
  const auto error_for = [&](const std::string& field,
                             const std::string& text) {
    TarWriter shard(temp_ / "tar/bad-0.tar");
    shard.add("a/1." + field, encode(random_image(8, 8), ".png"));
    shard.add("a/1.cls", text);
    shard.finish();
    return error_of<DataError>([&] {
      ImageDataBunch::from_tar({tar("bad-0.tar")}, {tar("valid-000000.tar")});
    });
  };
  const auto expect_words = [](const std::string& error, const char* words) {
    EXPECT_NE(error.find("bad-0.tar, sample 'a/1'"), error.npos) << error;
    EXPECT_NE(error.find(words), error.npos) << error;
  };
  expect_words(error_for("tiff16", "0"), "has no image");
  expect_words(error_for("png", "2"), "expected a number from 0 to 1");
  expect_words(error_for("png", "-1"), "is of class -1");
  expect_words(error_for("png", "cat"), "expected a whole number");
}

TEST_F(TarImageData, NamesShardAndSampleOfABrokenImage) {
  TarWriter shard(temp_ / "tar/bad-0.tar");
  shard.add("1.png", encode(random_image(8, 8), ".png"));
  shard.add("1.cls", "0");
  shard.add("2.png", "no picture at all");
  shard.add("2.cls", "0");
  shard.finish();
  const DataBunch data = ImageDataBunch::from_tar(
      {tar("bad-0.tar")},
      {tar("valid-000000.tar")},
      {},
      {.size = ImageSize{8, 8}, .batch_size = 1, .workers = 1});
  expect_error<DataError>(
      [&] { all_batches(*data.train); },
      {"bad-0.tar, sample '2'"});
}

TEST_F(TarImageData, NamesClassesByNumberWithoutAList) {
  std::filesystem::remove(temp_ / "tar/classes.txt");
  const ImageDataBunchOptions options = {.size = ImageSize{8, 8}};
  EXPECT_EQ(
      from_tar({}, options).classes,
      (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(
      from_tar({.classes = {"c", "d"}}, options).classes,
      (std::vector<std::string>{"c", "d"}));
}

}  // namespace
}  // namespace tern::tar_images_test
