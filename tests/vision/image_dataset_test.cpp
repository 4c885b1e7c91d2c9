#include "tern/vision/image_dataset.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"

namespace tern {
namespace {

TEST(ImageDataset, PutsEachImageInItsPlaceOfTheBatch) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    paths.push_back((temp / (std::to_string(i) + ".png")).string());
    write_file(paths[i], encode(cv::Mat(4, 5, CV_8UC1, cv::Scalar(i)), ".png"));
  }
  const ImageDataset images(paths, {7, 8, 9});
  EXPECT_EQ(images.size(), 3);
  EXPECT_EQ(images.image_size(), (ImageSize{4, 5}));
  const Batch batch = images.get_batch({2, 0}, {});
  ASSERT_EQ(batch.inputs.at(0).sizes(), (std::vector<int64_t>{2, 4, 5, 3}));
  EXPECT_EQ(batch.inputs[0].scalar_type(), torch::kByte);
  EXPECT_TRUE((batch.inputs[0][0] == 2).all().item<bool>());
  EXPECT_TRUE((batch.inputs[0][1] == 0).all().item<bool>());
  EXPECT_TRUE(
      torch::equal(batch.targets.at(0), torch::tensor({9, 7}, torch::kLong)));
}

TEST(ImageDataset, GivesOneChannelWhenAsked) {
  const TempFolder temp;
  write_image(temp / "a.png", 4, 5);
  const ImageDataset images(
      {(temp / "a.png").string()},
      {0},
      {.decode = {.channels = 1}});
  EXPECT_EQ(
      images.get_batch({0}, {}).inputs[0].sizes(),
      (std::vector<int64_t>{1, 4, 5, 1}));
}

TEST(ImageDataset, SqueezesAllImagesIntoTheSize) {
  const TempFolder temp;
  write_image(temp / "a.png", 40, 50);
  write_image(temp / "b.png", 8, 9);
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1},
      {.size = ImageSize{16, 12}});
  EXPECT_EQ(
      images.get_batch({0, 1}, {}).inputs[0].sizes(),
      (std::vector<int64_t>{2, 16, 12, 3}));
}

TEST(ImageDataset, NamesBothFilesWhenSizesDiffer) {
  const TempFolder temp;
  write_image(temp / "a.png", 4, 5);
  write_image(temp / "b.png", 5, 4);
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1});
  const std::string error = error_of<DataError>([&] {
    images.get_batch({0, 1}, {});
  });
  EXPECT_NE(error.find("b.png: is 5 x 4"), std::string::npos) << error;
  EXPECT_NE(error.find("a.png is 4 x 5"), std::string::npos) << error;
  EXPECT_NE(error.find("Set `size`"), std::string::npos) << error;
}

TEST(ImageDataset, NamesTheFileThatIsBroken) {
  const TempFolder temp;
  write_image(temp / "a.png");
  write_file(temp / "b.png", "not an image");
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1});
  expect_error<DataError>(
      [&] {
        images.get_batch({0, 1}, {});
      },
      {"b.png: is not an image"});
  EXPECT_EQ(images.describe(1), (temp / "b.png").string());
}

TEST(ImageDataset, NamesAFileThatVanished) {
  const TempFolder temp;
  write_image(temp / "a.png");
  const ImageDataset images({(temp / "a.png").string()}, {0});
  std::filesystem::remove(temp / "a.png");
  expect_error<IoError>([&] { images.get_batch({0}, {}); }, {"a.png"});
}

TEST(ImageDataset, NeedsOneLabelForEachPath) {
  expect_error<c10::ValueError>(
      [&] { ImageDataset({"a.png"}, {}); },
      {"1 paths and 0 labels"});
}

TEST(ImageDataset, NeedsASizeAboveZero) {
  expect_error<c10::ValueError>(
      [&] {
        ImageDataset({}, {}, {.size = ImageSize{0, 5}});
      },
      {"size is 0 x 5"});
}

TEST(ImageDataset, MayBeEmpty) {
  EXPECT_EQ(ImageDataset({}, {}).size(), 0);
}

}  // namespace
}  // namespace tern
