#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/transforms/render.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::resize_test {
namespace {

struct Seen {
  double left, top, right, bottom;
};

Seen seen(const SamplePlan& plan) {
  const Matrix3 matrix = plan.warp().matrix;
  const auto [left, top] = matrix.apply(0, 0);
  const auto [right, bottom] = matrix.apply(
      static_cast<double>(plan.target().width),
      static_cast<double>(plan.target().height));
  return {left, top, right, bottom};
}

TEST(Resize, SquishShowsTheWholeImage) {
  const Seen s = seen(
      planned({}, {100, 300}, 1, {50, 50}, {.resize = ResizeMethod::squish}));
  EXPECT_DOUBLE_EQ(s.left, 0);
  EXPECT_DOUBLE_EQ(s.right, 300);
  EXPECT_DOUBLE_EQ(s.bottom, 100);
}

TEST(Resize, CropKeepsTheAspectRatioAndTheCenter) {
  const Seen s = seen(
      planned({}, {100, 300}, 1, {50, 50}, {.resize = ResizeMethod::crop}));
  EXPECT_DOUBLE_EQ(s.left, 100);
  EXPECT_DOUBLE_EQ(s.right, 200);
  EXPECT_DOUBLE_EQ(s.top, 0);
  EXPECT_DOUBLE_EQ(s.bottom, 100);
}

TEST(Resize, PadShowsTheWholeImageBetweenTwoMargins) {
  const SamplePlan plan =
      planned({}, {100, 300}, 1, {60, 60}, {.resize = ResizeMethod::pad});
  const Seen s = seen(plan);
  EXPECT_DOUBLE_EQ(s.left, 0);
  EXPECT_DOUBLE_EQ(s.right, 300);
  EXPECT_DOUBLE_EQ(s.top, -100);
  EXPECT_DOUBLE_EQ(s.bottom, 200);
}

TEST(Resize, NoneCropsTheImageWithoutResizing) {
  const torch::Tensor image = random_picture(20, 20);
  EXPECT_TRUE(torch::equal(
      rendered(image, {}, 1, {10, 10}, {.resize = ResizeMethod::none}),
      image.slice(0, 5, 15).slice(1, 5, 15)));
}

TEST(Resize, RandCropReachesEveryPosition) {
  std::set<int> lefts;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Seen s = seen(planned(
        {rand_crop()},
        {50, 60},
        seed,
        {50, 50},
        {.resize = ResizeMethod::crop}));
    EXPECT_DOUBLE_EQ(s.left, std::round(s.left));
    lefts.insert(static_cast<int>(s.left));
  }
  EXPECT_EQ(lefts.size(), 11u);
  EXPECT_EQ(*lefts.begin(), 0);
  EXPECT_EQ(*lefts.rbegin(), 10);
}

TEST(Resize, RandomResizedCropStaysInItsRangesAndTheImage) {
  double smallest = 1, largest = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Seen s =
        seen(planned({random_resized_crop()}, {400, 500}, seed, {64, 64}));
    const double width = s.right - s.left, height = s.bottom - s.top;
    const double area = width * height / (400 * 500);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    EXPECT_GE(s.left, 0);
    EXPECT_GE(s.top, 0);
    EXPECT_LE(s.right, 500 + 1e-9);
    EXPECT_LE(s.bottom, 400 + 1e-9);
    EXPECT_GT(width / height, 0.74);
    EXPECT_LT(width / height, 1.35);
  }
  EXPECT_LT(smallest, 0.12);
  EXPECT_GE(smallest, 0.079);
  EXPECT_GT(largest, 0.9);
}

TEST(Resize, RandomResizedCropFallsBackToTheCenter) {
  const Seen s =
      seen(planned({random_resized_crop({0.9f, 1})}, {10, 1000}, 1, {64, 64}));
  EXPECT_NEAR(s.right - s.left, 13, 1);
  EXPECT_NEAR((s.left + s.right) / 2, 500, 1);
}

TEST(Resize, CenterCropRemovesAMargin) {
  const Seen s = seen(planned({center_crop(0.25f)}, {100, 100}, 1, {40, 40}));
  EXPECT_NEAR(s.left, 10, 1e-9);
  EXPECT_NEAR(s.right, 90, 1e-9);
}

TEST(Resize, AcceptsImagesOfOneRowOrColumn) {
  for (const ImageSize source : {ImageSize{1, 1}, {1, 100000}, {100000, 1}}) {
    for (const ResizeMethod method :
         {ResizeMethod::crop,
          ResizeMethod::pad,
          ResizeMethod::squish,
          ResizeMethod::none}) {
      const torch::Tensor image =
          torch::full({source.height, source.width, 3}, 9, torch::kByte);
      for (const Transforms& list :
           {get_transforms({.max_lighting = 0}).train,
            {random_resized_crop()}}) {
        EXPECT_TRUE(rendered(image, list, 1, {16, 16}, {.resize = method})
                        .eq(9)
                        .all()
                        .item<bool>());
      }
    }
  }
}

TEST(GetTransforms, MatchesFastai) {
  EXPECT_EQ(get_transforms().train.size(), 7u);
  EXPECT_EQ(get_transforms().valid.size(), 1u);
  EXPECT_EQ(
      get_transforms({.do_flip = false,
                      .max_rotate = 0,
                      .max_zoom = 1,
                      .max_lighting = 0,
                      .max_warp = 0,
                      .extra = {flip_lr()}})
          .train.size(),
      2u);
}

TEST(GetTransforms, FlipVertDrawsAllEightOrientations) {
  const torch::Tensor image = random_picture(20, 20);
  const auto ways = [&](bool flip_vert) {
    const Transforms train =
        get_transforms({.flip_vert = flip_vert, .p_affine = 0, .p_lighting = 0})
            .train;
    std::set<std::string> seen;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const torch::Tensor pixels = rendered(image, train, seed);
      seen.emplace(
          reinterpret_cast<const char*>(pixels.const_data_ptr<uint8_t>()),
          pixels.numel());
    }
    return seen.size();
  };
  EXPECT_EQ(ways(true), 8u);
  EXPECT_EQ(ways(false), 2u);
}

TEST(GetTransforms, OmitsTransformsWithProbabilityZero) {
  const torch::Tensor image = random_picture(20, 20);
  const auto is_unchanged = [&](GetTransformsOptions options) {
    options.do_flip = false;
    const Transforms train = get_transforms(options).train;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      if (!torch::equal(rendered(image, train, seed), image)) return false;
    }
    return true;
  };
  EXPECT_TRUE(is_unchanged({.p_affine = 0, .p_lighting = 0}));
  EXPECT_FALSE(is_unchanged({.p_affine = 0, .p_lighting = 1}));
  EXPECT_FALSE(is_unchanged({.p_affine = 1, .p_lighting = 0}));
}

TEST(GetTransforms, ValidationCropsTheCenterForAnySeed) {
  const torch::Tensor image = random_picture(40, 60);
  const TransformOptions crop = {.resize = ResizeMethod::crop};
  const Transforms valid = get_transforms().valid;
  EXPECT_TRUE(torch::equal(
      rendered(image, valid, 1, {40, 40}, crop),
      image.slice(1, 10, 50)));
  EXPECT_TRUE(torch::equal(
      rendered(image, valid, 2, {40, 40}, crop),
      image.slice(1, 10, 50)));
}

TEST(Erasing, CutoutErasesASquare) {
  const torch::Tensor image = torch::full({60, 60, 3}, 200, torch::kByte);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const torch::Tensor out =
        rendered(image, {cutout({1, 1}, {20, 20}, 1)}, seed);
    const int64_t black = out.eq(0).sum().item<int64_t>() / 3;
    EXPECT_GE(black, 100);
    EXPECT_LE(black, 400);
  }
}

TEST(Erasing, FillsARectangleWithNoise) {
  const torch::Tensor image = torch::full({60, 60, 3}, 200, torch::kByte);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const torch::Tensor out =
        rendered(image, {random_erasing(1, {0.2f, 0.2f})}, seed);
    const double share = out.ne(200).to(torch::kFloat).mean().item<double>();
    EXPECT_NEAR(share, 0.2, 0.03);
  }
}

TEST(Resize, RejectsInvalidRanges) {
  expect_error<c10::ValueError>(
      [] {
        random_resized_crop({0.5f, 1.5f});
      },
      {"scale goes up to 1.5"});
  expect_error<c10::ValueError>([] { center_crop(-1); }, {"margin is -1"});
  expect_error<c10::ValueError>(
      [] {
        random_erasing(1, {0, 2});
      },
      {"area is 0 to 2"});
}

}  // namespace
}  // namespace tern::resize_test
