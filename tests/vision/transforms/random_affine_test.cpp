#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/transforms/render.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::random_affine_test {
namespace {

constexpr double kClose = 1e-4;

Matrix3 drawn_with(const AffineRanges& ranges, ImageSize size, uint64_t seed) {
  SampleRng rng(seed, 0, 0);
  return draw_affine(ranges, size, rng);
}

// Applies the matrix of torchvision.transforms.functional from source to
// result, for an angle, a shear along the rows and a scale, about the origin.
std::pair<double, double>
by_torchvision(double angle, double shear, double scale, double x, double y) {
  constexpr double kRadians = 3.14159265358979323846 / 180;
  const double rot = angle * kRadians, slant = std::tan(shear * kRadians);
  return {
      scale * (std::cos(rot) * x - (std::cos(rot) * slant + std::sin(rot)) * y),
      scale *
          (std::sin(rot) * x - (std::sin(rot) * slant - std::cos(rot)) * y)};
}

TEST(RandomAffine, IsTheInverseOfTorchvisionsMatrix) {
  const AffineRanges ranges{
      .degrees = {30, 30},
      .scale = {2, 2},
      .shear = {10, 10}};
  const Matrix3 back = drawn_with(ranges, {80, 60}, 1);
  for (const auto& [x, y] : {std::pair{7., 3.}, {-5., 11.}, {0., 0.}}) {
    const auto [u, v] = by_torchvision(30, 10, 2, x, y);
    const auto [column, row] = back.apply(u + 30, v + 40);
    EXPECT_NEAR(column, x + 30, kClose);
    EXPECT_NEAR(row, y + 40, kClose);
  }
}

TEST(RandomAffine, TranslatesByAtMostItsFractionOfTheSize) {
  double most = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Matrix3 back = drawn_with({.translate = 0.1f}, {40, 200}, seed);
    const auto [column, row] = back.apply(100, 20);
    EXPECT_LE(std::fabs(column - 100), 20);
    EXPECT_LE(std::fabs(row - 20), 4);
    most = std::max(most, std::fabs(column - 100));
  }
  EXPECT_GT(most, 15);
}

TEST(RandomAffine, ScaleOfTwoShowsHalfOfTheImage) {
  const SamplePlan plan =
      planned({random_affine({.scale = {2, 2}})}, {100, 60});
  const auto [left, top] = plan.warp().matrix.apply(0, 0);
  EXPECT_NEAR(left, 15, kClose);
  EXPECT_NEAR(top, 25, kClose);
}

TEST(RandomAffine, ChangesNothingWithoutRanges) {
  const torch::Tensor image = random_picture(9, 7);
  EXPECT_TRUE(torch::equal(rendered(image, {random_affine({})}), image));
}

TEST(RandomAffine, RejectsReversedRanges) {
  expect_error<c10::ValueError>(
      [] {
        random_affine({.degrees = {5, -5}});
      },
      {"random_affine", "smaller number first"});
  expect_error<c10::ValueError>(
      [] {
        random_affine({.scale = {0, 1}});
      },
      {"random_affine", "above 0"});
}

}  // namespace
}  // namespace tern::random_affine_test
