#include "tern/vision/datasets/shard_images.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
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

TEST_F(ShardImages, WritesTheSameBytesForAnyNumberOfWorkers) {
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

TEST_F(ShardImages, StartsANewShardBeforeOneGrowsTooLarge) {
  const auto size = fs::file_size(temp_ / "images/cat/8.PNG");
  const ShardedImages written = shard_images(
      temp_ / "images",
      temp_ / "out",
      {.max_bytes = static_cast<int64_t>(size)});
  EXPECT_EQ(written.shards.size(), 9u);
}

TEST_F(ShardImages, KeepsTheClassesOfTheFirstSplit) {
  write_image(temp_ / "valid/dog/1.png");
  shard_images(temp_ / "images", temp_ / "out");
  shard_images(temp_ / "valid", temp_ / "out", {.name = "valid"});
  const auto valid =
      TarShards::open({(temp_ / "out/valid-000000.tar").string()});
  EXPECT_EQ(valid->sample(0).integer("cls"), 1);
  EXPECT_EQ(verify_shards(temp_ / "out"), 2);  // the checksums of both
  write_image(temp_ / "other/cow/1.png");
  expect_error<DataError>(
      [&] { shard_images(temp_ / "other", temp_ / "out", {.name = "test"}); },
      {"cow", "training images do not have"});
}

TEST_F(ShardImages, RejectsOverwritingAndInvalidOptions) {
  shard_images(temp_ / "images", temp_ / "out");
  expect_error<DataError>(
      [&] { shard_images(temp_ / "images", temp_ / "out"); },
      {"train-000000.tar", "exists already"});
  expect_error<c10::ValueError>(
      [&] { shard_images(temp_ / "images", temp_ / "x", {.name = "../a"}); },
      {"[shard_images]", "../a"});
  expect_error<c10::ValueError>(
      [&] { shard_images(temp_ / "images", temp_ / "x", {.max_samples = 0}); },
      {"max_samples is 0"});
}

TEST_F(ShardImages, DetectsAFlippedBit) {
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

TEST_F(ShardImages, KeepsEveryFileWithItsBoxes) {
  const auto cat = (temp_ / "images/cat/4.PNG").string();
  const auto dog = (temp_ / "images/dog/3.PNG").string();
  const BoxAnnotations annotations = {
      .images = {{cat, {{{1, 2, 3, 4.5, "cat"}}, ImageSize{12, 8}}}, {dog, {}}},
      .classes = {"dog", "cat"}};
  const ShardedImages written =
      shard_images(annotations, temp_ / "out", {.shuffle = false});
  EXPECT_EQ(written.images, 2);
  EXPECT_EQ(written.classes, annotations.classes);
  EXPECT_EQ(read_class_list(temp_ / "out/classes.txt"), annotations.classes);
  EXPECT_EQ(verify_shards(temp_ / "out"), 1);
  const auto shards = TarShards::open(
      {(temp_ / "out/train-000000.tar").string()},
      {.fields = {"png", "json"}});
  ASSERT_EQ(shards->size(), 2);
  EXPECT_EQ(shards->sample(0).key(), "00000000");
  EXPECT_EQ(shards->sample(0).bytes("png"), read_file(cat));
  EXPECT_EQ(
      shards->sample(0).text("json"),
      R"({"width":8,"height":12,"boxes":[{"bbox":[1,2,3,4.5],"label":"cat"}]})");
  EXPECT_EQ(shards->sample(1).text("json"), R"({"boxes":[]})");
}

TEST_F(ShardImages, RejectsBoxesThatCannotBeReadBack) {
  const auto path = (temp_ / "images/cat/4.PNG").string();
  const auto expect_refused =
      [&](const AnnotatedImage& image,
          std::initializer_list<std::string_view> text) {
        const BoxAnnotations annotations{.images = {image}, .classes = {"cat"}};
        expect_error<DataError>(
            [&] { shard_images(annotations, temp_ / "out"); },
            text);
        EXPECT_FALSE(fs::exists(temp_ / "out"));
      };
  expect_refused(
      {path, {{{1, 2, 1, 4, "cat"}}}},
      {"4.PNG", "1, 2, 1, 4", "x1 below x2"});
  expect_refused(
      {path, {{{1, 2, 3, 4, "cow"}}}},
      {"4.PNG", "class 'cow'", "1 classes"});
  expect_refused({path, {{}, ImageSize{12, 0}}}, {"0 x 12 pixels"});
  expect_refused({"a.txt", {}}, {"a.txt", "suffix of an image"});
  expect_error<c10::ValueError>(
      [&] { shard_images(BoxAnnotations(), temp_ / "out"); },
      {"[shard_images]", "no image"});
  expect_error<c10::ValueError>(
      [&] {
        shard_images(BoxAnnotations{.images = {{path, {}}}}, temp_ / "out");
      },
      {"no class"});
  // Existing classes of a different split are kept, as for folders.
  const BoxAnnotations cats{
      .images = {{path, {{{1, 2, 3, 4, "cat"}}}}},
      .classes = {}};
  EXPECT_EQ(
      shard_images(cats, temp_ / "out").classes,
      std::vector<std::string>{"cat"});
  const BoxAnnotations dogs{
      .images = {{path, {{{1, 2, 3, 4, "dog"}}}}},
      .classes = {"dog"}};
  expect_error<DataError>(
      [&] { shard_images(dogs, temp_ / "out", {.name = "valid"}); },
      {"class 'dog'", "classes.txt"});
}

}  // namespace
}  // namespace tern::shard_images_test
