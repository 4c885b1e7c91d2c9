#include "tern/vision/transforms/filters.h"

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/vision/transforms/drawn.h"

namespace tern {
namespace {

cv::Mat as_mat(const MutablePixels& image) {
  return {
      static_cast<int>(image.size.height),
      static_cast<int>(image.size.width),
      CV_8UC(static_cast<int>(image.channels)),
      image.pixels};
}

}  // namespace

TransformPtr box_blur(int max_radius, float p) {
  TORCH_CHECK_VALUE(
      max_radius >= 1,
      fmt::format(
          "[box_blur] max_radius is {}; expected at least 1 pixel.",
          max_radius));
  return drawn("box_blur", p, [max_radius](SamplePlan& plan, SampleRng& rng) {
    const int radius = 1 + static_cast<int>(rng.below(max_radius));
    plan.pixel_functions.emplace_back([radius](const MutablePixels& image) {
      cv::Mat pixels = as_mat(image);
      cv::blur(
          pixels.clone(),
          pixels,
          {2 * radius + 1, 2 * radius + 1},
          {-1, -1},
          cv::BORDER_REPLICATE);
    });
  });
}

TransformPtr sharpen(float p) {
  return drawn("sharpen", p, [](SamplePlan& plan, SampleRng&) {
    plan.pixel_functions.emplace_back([](const MutablePixels& image) {
      const cv::Matx33f kernel(-2, -2, -2, -2, 32, -2, -2, -2, -2);
      cv::Mat pixels = as_mat(image);
      cv::filter2D(
          pixels.clone(),
          pixels,
          /*ddepth=*/-1,
          kernel * (1 / 16.f),
          {-1, -1},
          /*delta=*/0,
          cv::BORDER_REPLICATE);
    });
  });
}

}  // namespace tern
