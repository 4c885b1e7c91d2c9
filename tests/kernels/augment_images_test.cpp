#include "tern/kernels/images/augment_images.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/images/normalize_images.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"

namespace tern::augment_images_test {
namespace {

const std::vector<double> kMean = {0.4, 0.5, 0.6}, kStddev = {0.2, 0.3, 0.4};

torch::Tensor noise(c10::IntArrayRef sizes) {
  return torch::randint(0, 256, sizes, torch::kByte);
}

torch::Tensor changed(
    const torch::Tensor& images,
    const std::vector<ImageChange>& changes) {
  return augment_images(images, changes, {}, {}, torch::kByte);
}

TEST(AugmentImages, LeavesImagesWithoutChangesUntouched) {
  for (const int64_t channels : {1, 3}) {
    for (const Padding padding :
         {Padding::zeros, Padding::border, Padding::reflection}) {
      for (const auto& [height, width] :
           {std::pair{1, 1}, {1, 7}, {5, 1}, {9, 13}}) {
        const auto images = noise({2, height, width, channels});
        EXPECT_TRUE(torch::equal(
            changed(images, {2, {.warp = {.padding = padding}}}),
            images));
      }
    }
  }
}

TEST(AugmentImages, WarpsEachImageByItsOwnMatrixAsWarpImageDoes) {
  const auto images = noise({3, 17, 23, 3});
  std::vector<ImageChange> changes(3);
  changes[0].warp.matrix = Matrix3::translation(3.25, -2.5);
  changes[0].warp.padding = Padding::zeros;
  changes[1].warp.matrix = Matrix3::translation(11.5, 8.5) *
                           Matrix3::rotation(0.3) *
                           Matrix3::translation(-11.5, -8.5);
  changes[1].warp.padding = Padding::border;
  changes[2].warp.matrix.values = {1.1, 0.1, -1, 0, 0.9, 1, 0.002, 0.003, 1};
  changes[2].warp.jitter_x = 2;
  changes[2].warp.jitter_y = 1;
  changes[2].warp.jitter_key = 7;
  const auto actual = changed(images, changes);
  for (int64_t i = 0; i < 3; ++i) {
    const auto image = images[i].contiguous();
    auto expected = torch::empty_like(image);
    const auto* const pixels = image.const_data_ptr<uint8_t>();
    warp_image(
        {.pixels = pixels,
         .height = 17,
         .width = 23,
         .channels = 3,
         .stride = 23 * 3,
         .end = pixels + image.numel()},
        changes[static_cast<size_t>(i)].warp,
        17,
        23,
        expected.mutable_data_ptr<uint8_t>());
    const auto difference =
        (actual[i].to(torch::kInt) - expected.to(torch::kInt)).abs();
    // The coordinates are rounded at different points, so a weight may differ
    // by 1/256.
    EXPECT_LE(difference.max().item<int>(), 2) << "image " << i;
    EXPECT_LE(difference.gt(0).to(torch::kFloat).mean().item<double>(), 0.02);
  }
}

TEST(AugmentImages, NormalizesTheResultAsNormalizeImagesDoes) {
  const auto images = noise({2, 6, 5, 3});
  std::vector<ImageChange> changes(2);
  changes[0].warp.matrix = Matrix3::translation(0.5, 0.5);
  for (auto& byte : changes[1].table) byte = static_cast<uint8_t>(255 - byte);
  changes[1].rectangles = {
      {.top = 1, .left = 2, .bottom = 4, .right = 5, .value = 9}};
  const auto bytes = changed(images, changes);
  EXPECT_TRUE(torch::equal(
      bytes[1].slice(0, 1, 4).slice(1, 2, 5),
      torch::full({3, 3, 3}, 9, torch::kByte)));
  EXPECT_TRUE(torch::equal(bytes[1][0], 255 - images[1][0]));
  for (const auto dtype : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    const auto actual = augment_images(images, changes, kMean, kStddev, dtype);
    EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(test::bit_equal(
        actual,
        normalize_images(bytes, kMean, kStddev, dtype)));
  }
}

TEST(AugmentImages, AcceptsAnEmptyBatch) {
  EXPECT_EQ(changed(noise({0, 4, 4, 3}), {}).size(0), 0);
}

TEST(AugmentImages, ReportsInvalidInputs) {
  const auto call = [](const torch::Tensor& images, size_t changes) {
    return [=] {
      augment_images(
          images,
          std::vector<ImageChange>(changes),
          kMean,
          kStddev,
          torch::kFloat);
    };
  };
  expect_error<c10::ValueError>(
      call(torch::zeros({2, 4, 4, 3}), 2),
      {"[2, 4, 4, 3] kFloat", "kByte"});
  expect_error<c10::ValueError>(
      call(noise({2, 4, 4, 2}), 2),
      {"[2, 4, 4, 2]", "1 or 3"});
  expect_error<c10::ValueError>(
      call(noise({2, 4, 4, 3}), 1),
      {"1 changes", "one per image"});
  expect_error<c10::ValueError>(
      call(noise({2, 4, 4, 1}), 2),
      {"[augment_images] 3 values of mean"});
}

}  // namespace
}  // namespace tern::augment_images_test
