#include "tern/vision/matting/tensor_filters.h"

#include <gtest/gtest.h>

#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/matting/fixture.h"

namespace tern::tensor_filters_test {
namespace {

using testing_support::wave;

torch::Tensor picture() {
  return wave({2, 3, 10, 14}, 0.61, 1) * 0.5 + 0.2;
}

torch::Tensor gray_of(const torch::Tensor& x) {
  return 0.299 * x.select(1, 0) + 0.587 * x.select(1, 1) +
         0.114 * x.select(1, 2);
}

TEST(TensorFilters, WarpMovesEachImageByItsOwnMatrix) {
  const torch::Tensor x = picture();
  const torch::Tensor y = warp_batch(
      x,
      {Matrix3::translation(3, 0), Matrix3::translation(0, -2)},
      Padding::zeros);
  EXPECT_TRUE(test::all_close(
      y[0].slice(2, 0, 11),
      x[0].slice(2, 3, 14),
      {1e-4, 1e-5}));
  EXPECT_EQ(y[0].slice(2, 11, 14).abs().max().item<float>(), 0);
  EXPECT_TRUE(
      test::all_close(y[1].slice(1, 2, 10), x[1].slice(1, 0, 8), {1e-4, 1e-5}));
}

TEST(TensorFilters, BlurIsTheMeanOfASquareInsideTheImage) {
  const torch::Tensor x = picture();
  for (const int64_t size : {4, 5, 39}) {
    const torch::Tensor y = box_blur_batch(x, size);
    ASSERT_EQ(y.sizes(), x.sizes());
    const int64_t top = std::max<int64_t>(0, 6 - size / 2);
    const int64_t left = std::max<int64_t>(0, 7 - size / 2);
    const torch::Tensor square = x[1][2]
                                     .slice(0, top, 6 - size / 2 + size)
                                     .slice(1, left, 7 - size / 2 + size);
    EXPECT_NEAR(y[1][2][6][7].item<float>(), square.mean().item<float>(), 1e-5);
  }
}

TEST(TensorFilters, ColorChangesMatchTorchvision) {
  const torch::Tensor x = picture();
  const torch::Tensor y = change_colors(
      x,
      {{.brightness = 1.1f, .contrast = 0.7f, .saturation = 0.6f}, {}});
  EXPECT_TRUE(test::all_close(y[1], x[1], {1e-4, 1e-5}));
  const torch::Tensor bright = x[0].unsqueeze(0) * 1.1;
  const torch::Tensor contrasted =
      bright * 0.7 + gray_of(bright).mean() * (1 - 0.7);
  const torch::Tensor expected =
      contrasted * 0.6 + gray_of(contrasted).unsqueeze(1) * (1 - 0.6);
  EXPECT_TRUE(test::all_close(y[0], expected[0], {1e-4, 1e-5}));
}

TEST(TensorFilters, HueRotatesColorsAroundGray) {
  const torch::Tensor x = picture();
  const auto turned = [&](float hue) {
    return change_colors(x, {{.hue = hue}, {.hue = hue}});
  };
  EXPECT_TRUE(test::all_close(turned(1), x, {1e-3, 1e-4}));
  const torch::Tensor small = turned(0.02f);
  EXPECT_FALSE(test::all_close(small, x, {1e-3, 1e-4}));
  EXPECT_TRUE(test::all_close(gray_of(small), gray_of(x), {1e-3, 1e-4}));
  const torch::Tensor gray = torch::full({1, 3, 2, 2}, 0.4);
  EXPECT_TRUE(test::all_close(
      change_colors(gray, {{.saturation = 2, .hue = 0.3f}}),
      gray,
      {1e-4, 1e-5}));
}

TEST(TensorFilters, CoverCropsTheCenter) {
  const torch::Tensor x = picture();
  EXPECT_TRUE(torch::equal(cover_batch(x, {10, 14}), x));
  EXPECT_TRUE(torch::equal(cover_batch(x, {10, 8}), x.slice(3, 3, 11)));
  EXPECT_EQ(
      cover_batch(x, {40, 33}).sizes(),
      torch::IntArrayRef({2, 3, 40, 33}));
}

}  // namespace
}  // namespace tern::tensor_filters_test
