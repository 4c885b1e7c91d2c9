#include "tern/vision/datasets/presize.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::presize_test {
namespace {

class Ears final : public SinkImpl {
 public:
  void line(const std::string&) override {}
  void progress(const Progress& progress) override {
    heard.push_back(progress);
  }
  std::vector<Progress> heard;
};

/// Returns a gradient, which looks similar at any size.
std::vector<uint8_t> slope(int height, int width) {
  cv::Mat image(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto value = static_cast<uint8_t>(200 * x / width);
      image.at<cv::Vec3b>(y, x) = {value, value, value};
    }
  }
  return encode(image, ".jpg");
}

class Presize : public testing::Test {
 protected:
  Presize() {
    for (int i = 0; i < 6; ++i) {
      paths_.push_back((temp_ / (std::to_string(i) + ".jpg")).string());
      write_file(paths_.back(), slope(100 + 10 * i, 140));
    }
  }

  ImageDataset images(ImageDatasetOptions options = {}) const {
    options.size = 32;
    return {paths_, std::vector<int64_t>(paths_.size()), options};
  }

  TempFolder temp_;
  std::vector<std::string> paths_;
};

TEST_F(Presize, KeepsTheAspectRatioAndCoversTheSize) {
  const auto pack = presize_images(images(), temp_ / "p.pack", {50, 50});
  const PixelView image = pack->image(0);
  EXPECT_EQ(image.height, 50);
  EXPECT_EQ(image.width, 70);
  // Images are never enlarged.
  const auto large = presize_images(images(), temp_ / "l.pack", {500, 500});
  EXPECT_EQ(large->image(1).height, 110);
}

TEST_F(Presize, ProducesNearlyTheSameBatches) {
  const ImageDataset plain =
      images({.transforms = {{random_resized_crop({0.5f, 1})}, {}}});
  const auto packed =
      plain.with_pack(presize_images(plain, temp_ / "p.pack", {80, 80}));
  const BatchContext context = {.seed = 1, .training = true};
  const torch::Tensor a = plain.get_batch({0, 3, 5}, context).inputs[0];
  const torch::Tensor b = packed->get_batch({0, 3, 5}, context).inputs[0];
  EXPECT_LE(
      (a.to(torch::kFloat) - b.to(torch::kFloat)).abs().mean().item<double>(),
      3);
}

TEST_F(Presize, ReusesTheFileUntilASourceChanges) {
  const auto file = temp_ / "p.pack";
  const auto time_of = [&] { return std::filesystem::last_write_time(file); };
  const auto ears = std::make_shared<Ears>();
  presize_images(images(), file, {50, 50}, ears);
  ASSERT_FALSE(ears->heard.empty());
  EXPECT_EQ(ears->heard.back().batch, 6);
  EXPECT_EQ(ears->heard.back().batches, 6);
  EXPECT_STREQ(ears->heard.back().task, "presize");

  const auto first = time_of();
  presize_images(images(), file, {50, 50});
  EXPECT_EQ(time_of(), first);
  presize_images(images(), file, {60, 60});
  EXPECT_NE(time_of(), first);

  write_file(paths_[2], slope(90, 90));
  const auto pack = presize_images(images(), file, {60, 60});
  EXPECT_EQ(pack->image(2).height, 60);
  EXPECT_EQ(pack->image(2).width, 60);
}

TEST_F(Presize, RecreatesADamagedFile) {
  const auto file = temp_ / "p.pack";
  write_file(file, std::string(1000, 'x'));
  std::string heard;
  const auto pack =
      presize_images(images(), file, {50, 50}, [&](const std::string& line) {
        heard += line;
      });
  EXPECT_EQ(pack->size(), 6);
  EXPECT_NE(heard.find("created again"), std::string::npos);
}

TEST_F(Presize, NamesOrSkipsABadImage) {
  write_file(paths_[4], std::string("no image"));
  expect_error<DataError>(
      [&] {
        presize_images(images(), temp_ / "p.pack", {50, 50});
      },
      {"4.jpg", "not an image"});
  EXPECT_FALSE(std::filesystem::exists(temp_ / "p.pack"));

  std::string heard;
  const ImageDataset tolerant = images(
      {.bad_images = BadImagePolicy::skip(0.5),
       .sink = [&](const std::string& line) { heard += line; }});
  const auto pack = presize_images(tolerant, temp_ / "p.pack", {50, 50});
  EXPECT_FALSE(pack->has(4));
  // Without its own sink, presize uses the sink of the images.
  EXPECT_NE(heard.find("4.jpg"), std::string::npos) << heard;
  const auto packed = tolerant.with_pack(pack);
  EXPECT_EQ(packed->get_batch({3, 4}, {.training = true}).size(), 2);
  const Batch evaluated = packed->get_batch({3, 4}, {});
  EXPECT_EQ(evaluated.size(), 1);
  EXPECT_EQ(evaluated.left_out, std::vector<int64_t>{1});
}

TEST_F(Presize, WorksForAWholeDataBunch) {
  const TempFolder temp;
  for (int i = 0; i < 8; ++i) {
    for (const char* split : {"train", "valid"}) {
      write_image(temp / split / "a" / (std::to_string(i) + ".png"), 40, 60);
    }
  }
  DataBunch data = ImageDataBunch::from_folder(
      temp.path(),
      {.size = ImageSize{20, 20}, .batch_size = 4, .workers = 1});
  data.presize(temp / "cache", {30, 30});
  EXPECT_TRUE(std::filesystem::exists(temp / "cache/train.pack"));
  EXPECT_TRUE(std::filesystem::exists(temp / "cache/valid.pack"));
  auto epoch = data.train->epoch(0);
  EXPECT_EQ(epoch.next()->inputs[0].size(1), 20);
  EXPECT_TRUE(data.train->options().shuffle);

  DataBunch other = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{torch::zeros({4, 2})},
          Tensors{torch::zeros({4})}),
      nullptr);
  expect_error<c10::ValueError>(
      [&] {
        other.presize(temp / "cache", {30, 30});
      },
      {"train dataset is not an ImageDataset"});
}

}  // namespace
}  // namespace tern::presize_test
