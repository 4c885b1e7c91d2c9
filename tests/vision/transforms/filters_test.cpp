#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/transforms/render.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::filters_test {
namespace {

/// Returns one white pixel in the center of black.
torch::Tensor point(uint8_t value = 255, uint8_t around = 0) {
  torch::Tensor image = torch::full({15, 15, 3}, around, torch::kByte);
  image[7][7].fill_(value);
  return image;
}

TEST(Filters, BlurSpreadsAPixelOverASquare) {
  std::set<int64_t> sides;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const torch::Tensor blurred = rendered(point(), {box_blur(3, 1)}, seed);
    const int64_t lit = (blurred.select(2, 0) > 0).sum().item<int64_t>();
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(lit)));
    EXPECT_EQ(side * side, lit);
    EXPECT_NEAR(
        blurred[7][7][0].item<double>(),
        255. / static_cast<double>(lit),
        0.51);
    sides.insert(side);
  }
  EXPECT_EQ(sides, (std::set<int64_t>{3, 5, 7}));
}

TEST(Filters, SharpenMatchesPillow) {
  const torch::Tensor sharper = rendered(point(120, 100), {sharpen(1)});
  // (32 * 120 - 16 * 100) / 16, and next to it (16 * 100 - 2 * 20) / 16.
  EXPECT_EQ(sharper[7][7][0].item<int>(), 140);
  EXPECT_NEAR(sharper[7][8][0].item<int>(), 97.5, 0.51);
  EXPECT_EQ(sharper[0][0][0].item<int>(), 100);
}

TEST(Filters, LeaveImagesUnchangedWithProbabilityZero) {
  const torch::Tensor image = random_picture(9, 7);
  EXPECT_TRUE(
      torch::equal(rendered(image, {box_blur(5, 0), sharpen(0)}), image));
}

TEST(Filters, RejectAnInvalidRadius) {
  expect_error<c10::ValueError>([] { box_blur(0); }, {"max_radius is 0"});
}

}  // namespace
}  // namespace tern::filters_test
