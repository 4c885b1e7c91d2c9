#include "tern/vision/datasets/images_in_memory.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::images_in_memory_test {
namespace {

/// Images of several sizes and dtypes; alpha is dropped, as from files.
std::vector<cv::Mat> various_images() {
  std::vector<cv::Mat> images;
  for (const int type : {CV_8UC3, CV_8UC1, CV_8UC4, CV_16UC3, CV_16UC1}) {
    for (int i = 0; i < 2; ++i) {
      images.push_back(random_image(20 + i, 30 - 3 * i + type, type));
    }
  }
  return images;
}

Tensors all_inputs(const DataLoader& loader) {
  Tensors inputs;
  DataLoader::Epoch batches = loader.epoch(0);
  while (const auto batch = batches.next()) inputs.push_back(batch->inputs[0]);
  return inputs;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

TEST(ImagesInMemory, ProduceTheSameBatchesAsFiles) {
  const TempFolder temp;
  const std::vector<cv::Mat> images = various_images();
  std::vector<std::string> paths, labels;
  for (size_t i = 0; i < images.size(); ++i) {
    paths.push_back((temp / fmt::format("{}.png", i)).string());
    labels.push_back(i % 2 == 0 ? "even" : "odd");
    write_file(paths.back(), encode(images[i], ".png"));
  }
  for (const int channels : {1, 3}) {
    const ImageDataBunchOptions options = {
        .size = ImageSize{16, 24},
        .decode = {.channels = channels},
        .transforms = {{flip_lr(), rotate({-10, 10}, 1)}, {}},
        .batch_size = 3,
        .workers = 1};
    const DataBunch files = ImageDataBunch::from_lists(paths, labels, options);
    const DataBunch memory =
        ImageDataBunch::from_images(images, labels, options);
    EXPECT_EQ(memory.classes, files.classes);
    expect_equal(all_inputs(*memory.train), all_inputs(*files.train));
    expect_equal(all_inputs(*memory.valid), all_inputs(*files.valid));
  }
}

TEST(ImagesInMemory, AreCopied) {
  cv::Mat image = random_image(8, 8);
  std::vector<cv::Mat> images;
  for (int i = 0; i < 5; ++i) images.push_back(image.clone());
  const std::vector<int> labels = {0, 1, 0, 1, 0};
  const DataBunch data = ImageDataBunch::from_images(
      images,
      labels,
      {.batch_size = 4, .workers = 0});
  const Tensors before = all_inputs(*data.valid);
  for (cv::Mat& each : images) each.setTo(0);
  images.clear();
  expect_equal(all_inputs(*data.valid), before);
  EXPECT_GT(before[0].max().item<int64_t>(), 0);
}

// Rows of a view are not contiguous.
TEST(ImagesInMemory, MayBeViewsOfLargerImages) {
  const cv::Mat whole = random_image(20, 30);
  const cv::Mat part = whole(cv::Rect(3, 5, 8, 6));
  const ImageItems items = items_from_images({part, part.clone()});
  EXPECT_EQ(*items[0].bytes, *items[1].bytes);
}

TEST(ImagesInMemory, MayBeTensorsWithTensorsOfLabels) {
  const torch::Tensor images =
      torch::randint(256, {12, 10, 14, 3}, torch::kByte);
  const torch::Tensor labels = torch::arange(12) * 5 % 15;
  const DataBunch data = ImageDataBunch::from_images(
      images,
      labels,
      {.batch_size = 4, .workers = 0});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"0", "5", "10"}));
  const Batch batch = *data.valid->epoch(0).next();
  for (int64_t row = 0; row < batch.size(); ++row) {
    const std::string name =
        data.valid->dataset().describe(batch.indices.at(row));
    const int64_t i = std::stoll(name.substr(name.find(' ')));
    EXPECT_TRUE(batch.inputs[0][row].equal(images[i])) << name;
    EXPECT_EQ(5 * batch.targets[0][row].item<int64_t>(), labels[i].item<int>());
  }

  const DataBunch gray = ImageDataBunch::from_images(
      images.select(3, 0),
      torch::rand(12),
      {.decode = {.channels = 1}, .batch_size = 4, .workers = 0});
  EXPECT_EQ(gray.outputs.at(0).kind, TargetKind::number);
  EXPECT_EQ(
      gray.valid->epoch(0).next()->inputs[0].sizes(),
      (std::vector<int64_t>{2, 10, 14, 1}));
}

TEST(ImagesInMemory, CanBeTrainedOnAndShown) {
  const TempFolder temp;
  std::vector<cv::Mat> images;
  std::vector<std::string> labels;
  for (int i = 0; i < 24; ++i) {
    images
        .emplace_back(16, 16, CV_8UC3, cv::Scalar::all(i % 2 == 0 ? 20 : 220));
    labels.emplace_back(i % 2 == 0 ? "dark" : "light");
  }
  const DataBunch data = ImageDataBunch::from_images(
      images,
      labels,
      {.batch_size = 8, .device = torch::kCPU});
  show_batch(data, temp / "batch.png");
  EXPECT_TRUE(std::filesystem::exists(temp / "batch.png"));
  Learner learn(
      data,
      simple_cnn({3, 8, 2}),
      {.metrics = {accuracy()}, .seed = 1, .sink = silent()});
  learn.fit(4, 1e-2);
  EXPECT_EQ(learn.validate().metrics.at(0).value, 1);
  EXPECT_EQ(learn.predict(images[1]).label, "light");
}

TEST(ImagesInMemory, CanHaveBoxesLikeFiles) {
  const DataBlock block{
      .items = items_from_images(
          {random_image(20, 20), random_image(22, 22), random_image(24, 24)},
          {"first", "second", "third"}),
      .split = split_by_list({"third"}),
      .classes = {"thing"},
      .boxes = [](const ImageItem& item) -> ImageBoxes {
        return {{{1, 2, item.path == "third" ? 24. : 20., 8, "thing"}}, {}};
      }};
  const DataBunch data = block.bunch(
      {.size = 12, .resize = ResizeMethod::squish, .batch_size = 2});
  const Tensors targets = data.valid->epoch(0).next()->targets;
  EXPECT_TRUE(targets[0][0][0].allclose(torch::tensor({0.5F, 1.F, 12.F, 4.F})));
}

TEST(ImagesInMemory, CanBeMixedWithFiles) {
  const TempFolder temp;
  write_image(temp / "a.png");
  ImageItems items = items_from_images({random_image(8, 8)});
  items.push_back({(temp / "a.png").string()});
  const auto source = source_of(items);
  ScratchBuffer buffer;
  EXPECT_EQ(source->read(0, buffer).size(), items[0].bytes->size());
  EXPECT_EQ(
      source->read(1, buffer).size(),
      std::filesystem::file_size(temp / "a.png"));
  EXPECT_EQ(source_of({items[1]}), nullptr);
}

TEST(ImagesInMemory, ArePackedAgainWhenAnImageHasChanged) {
  const TempFolder temp;
  std::vector<cv::Mat> images = {random_image(40, 40), random_image(44, 44)};
  const auto mean_of_pack = [&] {
    const ImageDataset data(
        {.paths = {"a", "b"}, .source = source_of(items_from_images(images))},
        {.size = 16});
    const auto pack = presize_images(data, temp / "p.pack", {20, 20}, silent());
    const PixelView image = pack->image(1);
    return cv::mean(cv::Mat(
        static_cast<int>(image.height),
        static_cast<int>(image.width),
        CV_8UC3,
        const_cast<uint8_t*>(image.pixels)))[0];
  };
  const double before = mean_of_pack();
  EXPECT_EQ(mean_of_pack(), before);
  images[1].setTo(7);
  EXPECT_EQ(mean_of_pack(), 7);
}

TEST(ImagesInMemory, AreRejectedIfInvalid) {
  const std::vector<cv::Mat> images = {random_image(8, 8), random_image(9, 9)};
  expect_error<c10::ValueError>(
      [] {
        items_from_images({random_image(8, 8), cv::Mat(4, 5, CV_32FC3)});
      },
      {"[items_from_images: image 1] the cv::Mat is 4 x 5 of CV_32FC3",
       "cv::Mat::convertTo"});
  expect_error<c10::ValueError>(
      [] { items_from_images(std::vector<cv::Mat>(1)); },
      {"image 0] the cv::Mat is 0 x 0"});
  expect_error<c10::ValueError>(
      [] {
        items_from_images(torch::rand({2, 3, 8, 8}));
      },
      {"[items_from_images: image 0] the image is", "expected [H, W]"});
  expect_error<c10::ValueError>(
      [] { items_from_images(torch::Tensor()); },
      {"expected [N, H, W]"});
  expect_error<c10::ValueError>(
      [&] { items_from_images(images, {"one"}); },
      {"got 2 images and 1 names"});
  ImageItems twice = items_from_images(images);
  for (const ImageItem& item : items_from_images(images)) twice.push_back(item);
  const DataBlock block{
      .items = twice,
      .label =
          label_from_func([](const ImageItem& item) { return item.path; })};
  expect_error<c10::ValueError>(
      [&] { block.bunch({.size = 8}); },
      {"two images in memory are named 'image 0'"});
  expect_error<c10::ValueError>(
      [&] { k_folds(block, 2, {.size = 8}); },
      {"two images in memory are named 'image 0'"});
  expect_error<c10::ValueError>(
      [&] {
        items_from_images(images, {"cat", "cat"});
      },
      {"two images are named 'cat'"});
  expect_error<c10::ValueError>(
      [&] {
        ImageDataBunch::from_images(images, std::vector<int>{1, 2, 3});
      },
      {"got 2 images and 3 labels"});
  expect_error<c10::ValueError>(
      [&] {
        ImageDataBunch::from_images(
            torch::zeros({2, 8, 8, 3}, torch::kByte),
            torch::zeros({2, 1}));
      },
      {"labels are", "expected [N]"});
  expect_error<c10::ValueError>(
      [&] {
        ImageDataBunch::from_images(
            std::vector<cv::Mat>(4, images[0]),
            std::vector<int>{1, 2, 1, 2},
            {.valid_pct = 0.5, .size = 8, .report_duplicates = true});
      },
      {"report_duplicates compares image files"});
}

}  // namespace
}  // namespace tern::images_in_memory_test
