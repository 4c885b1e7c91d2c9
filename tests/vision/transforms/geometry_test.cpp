#include "tern/vision/transforms/geometry.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/transforms/render.h"

namespace tern::geometry_test {
namespace {

constexpr double kClose = 1e-6;

/// Returns the source of the point (x, y) of the result.
std::pair<double, double>
source_of(const SamplePlan& plan, double x, double y) {
  return plan.warp().matrix.apply(x, y);
}

TEST(Geometry, FlipsLeftToRight) {
  const torch::Tensor image = random_picture(6, 9);
  EXPECT_TRUE(torch::equal(rendered(image, {flip_lr(1)}), image.flip(1)));
  EXPECT_TRUE(torch::equal(rendered(image, {flip_lr(0)}), image));
}

TEST(Geometry, DihedralDrawsAllEightOrientations) {
  const torch::Tensor image = random_picture(7, 7);
  int found = 0;
  for (const torch::Tensor& turned :
       {image,
        image.flip(0),
        image.flip(1),
        image.rot90(1),
        image.rot90(2),
        image.rot90(3),
        image.transpose(0, 1),
        image.rot90(2).transpose(0, 1)}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      if (torch::equal(rendered(image, {dihedral()}, seed), turned)) {
        ++found;
        break;
      }
    }
  }
  EXPECT_EQ(found, 8);
}

TEST(Geometry, RotatesClockwiseAroundTheCenter) {
  const torch::Tensor image = random_picture(9, 9);
  EXPECT_TRUE(torch::equal(
      rendered(image, {rotate({90, 90}, 1)}),
      image.rot90(-1).contiguous()));
}

TEST(Geometry, RotationKeepsAnglesInNonSquareImages) {
  const SamplePlan plan = planned({rotate({30, 30}, 1)}, {100, 200});
  const auto [x, y] = source_of(plan, 100, 50);
  EXPECT_NEAR(x, 100, kClose);
  EXPECT_NEAR(y, 50, kClose);
  const auto [u, v] = source_of(plan, 110, 50);
  EXPECT_NEAR(std::hypot(u - x, v - y), 10, kClose);
  EXPECT_NEAR(v - y, -10 * std::sin(30 * 3.14159265358979 / 180), kClose);
}

TEST(Geometry, ZoomStaysInsideTheImage) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const SamplePlan plan = planned({rand_zoom({2, 2}, 1)}, {80, 60}, seed);
    const auto [left, top] = source_of(plan, 0, 0);
    const auto [right, bottom] = source_of(plan, 60, 80);
    EXPECT_NEAR(right - left, 30, kClose);
    EXPECT_NEAR(bottom - top, 40, kClose);
    EXPECT_GE(left, -kClose);
    EXPECT_GE(top, -kClose);
    EXPECT_LE(right, 60 + kClose);
    EXPECT_LE(bottom, 80 + kClose);
  }
}

TEST(Geometry, SolvesForAPerspectiveFromFourPoints) {
  const Matrix3 matrix = perspective_matrix(
      {{{0, 0}, {0, 10}, {10, 0}, {10, 10}}},
      {{{1, 2}, {-1, 11}, {12, 0}, {9, 13}}});
  const auto [x, y] = matrix.apply(10, 0);
  EXPECT_NEAR(x, 12, kClose);
  EXPECT_NEAR(y, 0, kClose);
  const auto [u, v] = matrix.apply(0, 10);
  EXPECT_NEAR(u, -1, kClose);
  EXPECT_NEAR(v, 11, kClose);
  expect_error<c10::ValueError>(
      [] {
        perspective_matrix(
            {{{0, 0}, {1, 1}, {2, 2}, {3, 3}}},
            {{{0, 0}, {0, 1}, {1, 0}, {1, 1}}});
      },
      {"on a line"});
}

TEST(Geometry, SymmetricWarpMatchesFastai) {
  // With all four draws equal to m, fastai's targ_pts are the corners times 1 +
  // m, and they show the corners of the image.
  const SamplePlan plan =
      planned({symmetric_warp({0.2f, 0.2f}, 1)}, {100, 100});
  const auto [x, y] = source_of(plan, 50 + 50 * 1.2, 50 + 50 * 1.2);
  EXPECT_NEAR(x, 100, 1e-4);
  EXPECT_NEAR(y, 100, 1e-4);
}

TEST(Geometry, ComposesTransformsIntoOneResampling) {
  const torch::Tensor image = random_picture(32, 32);
  // Forward and back: a second resampling would blur the image.
  EXPECT_TRUE(torch::equal(
      rendered(
          image,
          {rotate({17, 17}, 1),
           zoom({1.5f, 1.5f}, 1),
           zoom({1 / 1.5f, 1 / 1.5f}, 1),
           rotate({-17, -17}, 1)}),
      image));
}

TEST(Geometry, AppliesTransformsWithTheirProbability) {
  const torch::Tensor image = random_picture(4, 4);
  int flipped = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    flipped +=
        torch::equal(rendered(image, {flip_lr(0.25f)}, seed), image) ? 0 : 1;
  }
  EXPECT_NEAR(flipped, 100, 30);
}

TEST(Geometry, RejectsInvalidRanges) {
  expect_error<c10::ValueError>([] { flip_lr(1.5f); }, {"flip_lr", "p is 1.5"});
  expect_error<c10::ValueError>(
      [] {
        rotate({10, -10});
      },
      {"rotate", "smaller number first"});
  expect_error<c10::ValueError>([] { zoom({0, 1}); }, {"zoom", "above 0"});
}

}  // namespace
}  // namespace tern::geometry_test
