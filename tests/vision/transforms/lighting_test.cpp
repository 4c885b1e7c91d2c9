#include <cmath>

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/transforms/render.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::lighting_test {
namespace {

double logit(double x) {
  x = std::clamp(x, 1e-7, 1 - 1e-7);
  return std::log(x / (1 - x));
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Returns every value once, in all three channels.
torch::Tensor all_grays() {
  return torch::arange(256)
      .view({16, 16, 1})
      .expand({16, 16, 3})
      .to(torch::kByte)
      .contiguous();
}

int64_t largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kInt) - b.to(torch::kInt)).abs().max().item<int64_t>();
}

TEST(Lighting, BrightnessAndContrastMatchFastai) {
  const torch::Tensor out = rendered(
      all_grays(),
      {brightness({0.6f, 0.6f}, 1), contrast({1.2f, 1.2f}, 1)});
  for (int i = 0; i < 256; ++i) {
    const double expected =
        255 * sigmoid((logit(i / 255.0) + logit(0.6)) * 1.2);
    EXPECT_NEAR(out[i / 16][i % 16][1].item<double>(), expected, 0.51) << i;
  }
}

TEST(Lighting, NeutralChangesLeaveImagesUnchanged) {
  const torch::Tensor image = random_picture(9, 9);
  EXPECT_TRUE(torch::equal(
      rendered(
          image,
          {brightness({0.5f, 0.5f}, 1),
           contrast({1, 1}, 1),
           saturation(0, 1),
           hue(0, 1)}),
      image));
}

TEST(Lighting, SaturationMatchesFastai) {
  const torch::Tensor image = random_picture(12, 12);
  SamplePlan plan = planned({saturation(0.5f, 1)}, {12, 12});
  const double keep = plan.lighting.saturation;
  ASSERT_NE(keep, 1);
  const torch::Tensor out = rendered(image, {saturation(0.5f, 1)});
  for (int y = 0; y < 12; ++y) {
    double l[3];
    for (int c = 0; c < 3; ++c) {
      l[c] = logit(image[y][3][c].item<double>() / 255);
    }
    const double gray = 0.2989 * l[0] + 0.5870 * l[1] + 0.1140 * l[2];
    for (int c = 0; c < 3; ++c) {
      EXPECT_NEAR(
          out[y][3][c].item<double>(),
          255 * sigmoid(l[c] * keep + gray * (1 - keep)),
          0.51);
    }
  }
}

TEST(Lighting, HueRotatesTheColorCircleLikeOpenCv) {
  const torch::Tensor image = random_picture(20, 20);
  const float turn = planned({hue(0.2f, 1)}, {20, 20}).lighting.hue;
  ASSERT_NE(turn, 0);
  const torch::Tensor out = rendered(image, {hue(0.2f, 1)});
  cv::Mat rgb(20, 20, CV_8UC3, image.data_ptr<uint8_t>());
  cv::Mat floats, hsv, back;
  rgb.convertTo(floats, CV_32F, 1.0 / 255);
  cv::cvtColor(floats, hsv, cv::COLOR_RGB2HSV);
  for (auto& pixel : cv::Mat_<cv::Vec3f>(hsv)) {
    pixel[0] = std::fmod(pixel[0] + turn * 360 + 360, 360.f);
  }
  cv::cvtColor(hsv, back, cv::COLOR_HSV2RGB);
  back.convertTo(rgb = cv::Mat(), CV_8U, 255);
  EXPECT_LE(
      largest_difference(
          out,
          torch::from_blob(rgb.data, {20, 20, 3}, torch::kByte)),
      1);
}

TEST(Lighting, AppliesCustomCurves) {
  class Invert final : public Transform {
   public:
    void plan(SamplePlan& plan, SampleRng&) const override {
      plan.lighting.tones.emplace_back([](float x) { return 1 - x; });
    }
  };
  const torch::Tensor image = random_picture(8, 8);
  EXPECT_TRUE(
      torch::equal(rendered(image, {std::make_shared<Invert>()}), 255 - image));
}

TEST(Lighting, ReordersChannels) {
  const torch::Tensor image = random_picture(8, 8);
  EXPECT_TRUE(
      torch::equal(rendered(image, {channel_order({2, 1, 0})}), image.flip(2)));
}

TEST(Lighting, ReplacesOneChannelWithNoise) {
  const torch::Tensor image = random_picture(8, 8);
  const torch::Tensor same =
      rendered(image, {rgb_randomize({0.5f, 0.5f}, 1)}).eq(image).all(0).all(0);
  EXPECT_EQ(same.sum().item<int64_t>(), 2);
}

TEST(Lighting, RejectsInvalidArguments) {
  expect_error<c10::ValueError>([] { brightness({0, 0.5f}); }, {"brightness"});
  expect_error<c10::ValueError>([] { brightness({0.5f, 1}); }, {"white"});
  expect_error<c10::ValueError>([] { saturation(1); }, {"max is 1"});
  expect_error<c10::ValueError>([] { hue(0.6f); }, {"half of the circle"});
  expect_error<c10::ValueError>(
      [] {
        channel_order({0, 1, 3});
      },
      {"no channel 3"});
}

}  // namespace
}  // namespace tern::lighting_test
