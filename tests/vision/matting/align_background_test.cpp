#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>
#include <torch/types.h>

#include "tern/examples/matting_video.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/test_images.h"

namespace tern::align_background_test {
namespace {

torch::Tensor tensor_of(const cv::Mat& image) {
  return torch::from_blob(image.data, {image.rows, image.cols, 3}, torch::kByte)
      .clone();
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kFloat) - b.to(torch::kFloat))
      .abs()
      .mean()
      .item<double>();
}

TEST(AlignBackground, UndoesAKnownHomography) {
  cv::Mat background, scene;
  cv::resize(
      random_image(30, 40),
      background,
      {480, 360},
      0,
      0,
      cv::INTER_LINEAR);
  const cv::Mat homography =
      (cv::Mat_<double>(3, 3) << 1.01, 0.03, 7, -0.02, 0.99, 5, 2e-5, 1e-5, 1);
  cv::warpPerspective(background, scene, homography, background.size());
  const torch::Tensor src = tensor_of(scene), bgr = tensor_of(background);
  const torch::Tensor aligned = examples::align_background(src, bgr);
  const auto inside = [](const torch::Tensor& image) {
    return image.slice(0, 40, 320).slice(1, 40, 440);
  };
  EXPECT_GT(difference(inside(src), inside(bgr)), 20);
  EXPECT_LT(difference(inside(src), inside(aligned)), 3);
}

TEST(AlignBackground, RejectsImagesWithoutFeatures) {
  const torch::Tensor flat = torch::full({60, 80, 3}, 100, torch::kByte);
  expect_error<c10::ValueError>(
      [&] { examples::align_background(flat, flat); },
      {"0 points", "--preprocess-alignment"});
}

}  // namespace
}  // namespace tern::align_background_test
