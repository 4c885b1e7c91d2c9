#include "tern/kernels/images/normalize_images.h"

#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/kernels/reference.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::normalize_images_test {
namespace {

const std::vector<double> kMean = {0.485, 0.456, 0.406};
const std::vector<double> kStd = {0.229, 0.224, 0.225};

torch::Tensor random_images(std::vector<int64_t> sizes) {
  torch::manual_seed(1);
  return torch::randint(0, 256, sizes, torch::kByte);
}

class NormalizeImagesTest
    : public testing::TestWithParam<std::tuple<torch::ScalarType, int>> {};

TEST_P(NormalizeImagesTest, EqualsReference) {
  const auto [dtype, channels] = GetParam();
  std::vector<double> mean, stddev;
  for (int c = 0; c < channels; ++c) {
    mean.push_back(kMean[c % 3] + 0.001 * c);
    stddev.push_back(kStd[c % 3] + 0.001 * c);
  }
  for (const auto& [n, h, w] :
       {std::tuple{1, 1, 1}, {2, 5, 7}, {1, 3, 113}, {3, 37, 25}}) {
    const auto images = random_images({n, h, w, channels});
    const auto actual = normalize_images(images, mean, stddev, dtype);
    const auto expected =
        reference::normalize_images(images, mean, stddev, dtype);
    EXPECT_EQ(actual.scalar_type(), dtype);
    EXPECT_EQ(actual.sizes(), (std::vector<int64_t>{n, channels, h, w}));
    EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(all_close(actual, expected));
  }
}

INSTANTIATE_TEST_SUITE_P(
    TypesAndChannels,
    NormalizeImagesTest,
    testing::Combine(
        testing::Values(torch::kFloat, torch::kHalf, torch::kBFloat16),
        testing::Values(1, 2, 3, 4, 13, 300)),
    [](const auto& info) {
      return std::string(c10::toString(std::get<0>(info.param))) + "_" +
             std::to_string(std::get<1>(info.param));
    });

TEST(NormalizeImages, HalvesAreTheFloatsRoundedOnce) {
  const auto images = random_images({2, 33, 65, 3});
  const auto floats = normalize_images(images, kMean, kStd);
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    EXPECT_TRUE(bit_equal(
        normalize_images(images, kMean, kStd, dtype),
        floats.to(dtype)));
  }
}

TEST(NormalizeImages, EqualsTheClosedForm) {
  const auto images =
      torch::tensor({0, 255, 51}, torch::kByte).view({1, 1, 1, 3});
  const auto out = normalize_images(
      images,
      std::vector<double>{0.5, 0.5, 0.2},
      std::vector<double>{0.5, 0.25, 1});
  EXPECT_TRUE(all_close(out.flatten(), torch::tensor({-1.f, 2.f, 0.f})));
}

TEST(NormalizeImages, AcceptsUnalignedViews) {
  const auto images = random_images({3, 8, 9, 3});
  const auto room = torch::zeros({images.numel() + 1}, torch::kByte);
  const auto view = room.narrow(0, 1, images.numel()).view(images.sizes());
  view.copy_(images);
  EXPECT_TRUE(bit_equal(
      normalize_images(view, kMean, kStd),
      normalize_images(images, kMean, kStd)));
}

TEST(NormalizeImages, EmptyBatchGivesEmptyBatch) {
  const auto out = normalize_images(random_images({0, 4, 5, 3}), kMean, kStd);
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{0, 3, 4, 5}));
}

TEST(NormalizeImages, ResultDoesNotDependOnThreads) {
  const auto images = random_images({5, 61, 67, 3});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = normalize_images(images, kMean, kStd, torch::kHalf);
  at::set_num_threads(5);
  const auto many = normalize_images(images, kMean, kStd, torch::kHalf);
  at::set_num_threads(threads);
  EXPECT_TRUE(bit_equal(many, one));
}

void expect_rejected(
    const torch::Tensor& images,
    const std::vector<double>& mean,
    const std::vector<double>& stddev,
    torch::ScalarType dtype,
    const std::string& says) {
  try {
    normalize_images(images, mean, stddev, dtype);
    FAIL() << "did not throw: " << says;
  } catch (const c10::ValueError& error) {
    EXPECT_NE(error.msg().find("[normalize_images] "), std::string::npos);
    EXPECT_NE(error.msg().find(says), std::string::npos) << error.msg();
  }
}

TEST(NormalizeImages, RejectsBadArguments) {
  const auto images = random_images({2, 4, 5, 3});
  expect_rejected(torch::Tensor(), kMean, kStd, torch::kFloat, "undefined");
  expect_rejected(
      images.to(torch::kFloat),
      kMean,
      kStd,
      torch::kFloat,
      "[2, 4, 5, 3] kFloat on cpu; expected contiguous [N, H, W, C] kByte");
  expect_rejected(images[0], kMean, kStd, torch::kFloat, "[4, 5, 3] kByte");
  expect_rejected(
      images.permute({0, 3, 1, 2}),
      kMean,
      kStd,
      torch::kFloat,
      "not contiguous");
  expect_rejected(
      images,
      {0.5},
      kStd,
      torch::kFloat,
      "1 values of mean and 3 of stddev; expected 3");
  expect_rejected(
      images,
      kMean,
      {0.5, 0, 0.5},
      torch::kFloat,
      "stddev is [0.5, 0, 0.5]");
  expect_rejected(
      images,
      {0.5, std::numeric_limits<double>::quiet_NaN(), 0.5},
      kStd,
      torch::kFloat,
      "mean is");
  expect_rejected(images, kMean, kStd, torch::kDouble, "dtype is kDouble");
}

}  // namespace
}  // namespace tern::test::normalize_images_test
