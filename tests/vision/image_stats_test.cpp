#include "tern/vision/image_stats.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"

namespace tern::image_stats_test {
namespace {

TEST(ImageStats, RepeatsOneValueForAllChannels) {
  EXPECT_EQ(
      stats::mnist().with_channels(3).mean,
      (std::vector<double>{0.131, 0.131, 0.131}));
}

TEST(ImageStats, AveragesColoursForGrey) {
  EXPECT_DOUBLE_EQ(stats::imagenet().with_channels(1).mean.at(0), 1.347 / 3);
}

TEST(ImageStats, RefusesNumbersThatDoNotFitTheChannels) {
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
