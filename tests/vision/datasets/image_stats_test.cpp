#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/vision/transforms/augment_batch.h"

namespace tern::image_stats_test {
namespace {

TEST(ImageStats, MatchThePublishedNumbers) {
  const auto expect = [](const ImageStats& stats,
                         const std::vector<double>& mean,
                         const std::vector<double>& stddev) {
    EXPECT_EQ(stats.mean, mean);
    EXPECT_EQ(stats.stddev, stddev);
  };
  // From torchvision.models' weights, and from fastai.vision.core for the
  // others.
  expect(stats::imagenet(), {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  expect(stats::cifar(), {0.491, 0.482, 0.447}, {0.247, 0.243, 0.261});
  expect(stats::mnist(), {0.131}, {0.308});
  expect(stats::none(), {0}, {1});
}

TEST(ImageStats, MatchThePixelsOfCifar10) {
  // Computed over its 50,000 training images; fastai's 0.261 is truncated.
  const std::vector<double> mean = {0.49140, 0.48216, 0.44653};
  const std::vector<double> stddev = {0.24703, 0.24349, 0.26159};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(stats::cifar().mean.at(i), mean[i], 0.0006);
    EXPECT_NEAR(stats::cifar().stddev.at(i), stddev[i], 0.0006);
  }
}

TEST(ImageStats, RepeatsOneValueForAllChannels) {
  EXPECT_EQ(
      stats::mnist().with_channels(3).mean,
      (std::vector<double>{0.131, 0.131, 0.131}));
}

TEST(ImageStats, AveragesColorsForGray) {
  EXPECT_DOUBLE_EQ(stats::imagenet().with_channels(1).mean.at(0), 1.347 / 3);
}

TEST(ImageStats, RejectsAWrongNumberOfChannels) {
  expect_error<c10::ValueError>(
      [&] {
        (ImageStats{{0, 0}, {1, 1}}.with_channels(3));
      },
      {"2 values for 3 channels"});
  expect_error<c10::ValueError>(
      [&] {
        (ImageStats{{0, 0, 0}, {1}}.with_channels(3));
      },
      {"mean has 3 values and stddev has 1"});
}

}  // namespace
}  // namespace tern::image_stats_test
