#include "tern/vision/transforms/pixels.h"

#include <cmath>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/kernels/check.h"
#include "tern/vision/transforms/drawn.h"

namespace tern {

TransformPtr brightness(Range change, float p) {
  checked("brightness", change, 0);
  TERN_CHECK_VALUE(
      change.high < 1,
      "[brightness] the range ends at {}; expected an end below 1, which is "
      "white.",
      change.high);
  return drawn("brightness", p, [change](SamplePlan& plan, SampleRng& rng) {
    const float to = draw(change, rng);
    plan.lighting.shift += std::log(to / (1 - to));
  });
}

TransformPtr contrast(Range scale, float p) {
  checked("contrast", scale);
  return drawn("contrast", p, [scale](SamplePlan& plan, SampleRng& rng) {
    const float factor = draw(scale, rng);
    plan.lighting.scale *= factor;
    plan.lighting.shift *= factor;
  });
}

TransformPtr saturation(float max, float p) {
  TERN_CHECK_VALUE(
      max >= 0 && max < 1,
      "[saturation] max is {}; expected 0 to below 1.",
      max);
  const float range = -std::log(1 - max);
  return drawn("saturation", p, [range](SamplePlan& plan, SampleRng& rng) {
    plan.lighting.saturation *= std::exp(rng.uniform(-range, range));
  });
}

TransformPtr hue(float max, float p) {
  TERN_CHECK_VALUE(
      max >= 0 && max <= 0.5f,
      "[hue] max is {}; expected 0 to 0.5, half of the circle.",
      max);
  return drawn("hue", p, [max](SamplePlan& plan, SampleRng& rng) {
    plan.lighting.hue += rng.uniform(-max, max);
  });
}

TransformPtr channel_order(std::array<int, 3> order) {
  for (const int channel : order) {
    TERN_CHECK_VALUE(
        channel >= 0 && channel < 3,
        "[channel_order] there is no channel {}; expected 0, 1 or 2.",
        channel);
  }
  return drawn("channel_order", 1, [order](SamplePlan& plan, SampleRng&) {
    plan.pixel_functions.emplace_back([order](const MutablePixels& image) {
      const int64_t count =
          image.channels == 3 ? image.size.height * image.size.width : 0;
      for (int64_t i = 0; i < count; ++i) {
        uint8_t* pixel = image.pixels + i * 3;
        const uint8_t from[3] = {pixel[0], pixel[1], pixel[2]};
        for (int c = 0; c < 3; ++c) pixel[c] = from[order[c]];
      }
    });
  });
}

TransformPtr rgb_randomize(Range threshold, float p) {
  checked("rgb_randomize", threshold);
  return drawn(
      "rgb_randomize",
      p,
      [threshold](SamplePlan& plan, SampleRng& rng) {
        const auto channel = static_cast<int64_t>(rng.below(3));
        const float limit = draw(threshold, rng);
        const uint32_t key = rng();
        plan.pixel_functions.emplace_back([=](const MutablePixels& image) {
          const int64_t count = image.size.height * image.size.width;
          for (int64_t i = 0; i < count; ++i) {
            const float noise =
                0.5f + 0.5f * warp_jitter(key, channel, i).first;
            image.pixels[i * image.channels + channel % image.channels] =
                static_cast<uint8_t>(255 * limit * noise);
          }
        });
      });
}

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
  TERN_CHECK_VALUE(
      max_radius >= 1,
      "[box_blur] max_radius is {}; expected at least 1 pixel.",
      max_radius);
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

TransformPtr cutout(Range holes, Range length, float p) {
  checked("cutout", holes);
  checked("cutout", length, 0);
  return drawn("cutout", p, [holes, length](SamplePlan& plan, SampleRng& rng) {
    const auto fewest = static_cast<int64_t>(holes.low);
    const auto most = static_cast<int64_t>(holes.high);
    const int64_t count =
        fewest + static_cast<int64_t>(rng.below(most - fewest + 1));
    for (int64_t i = 0; i < count; ++i) {
      const auto side = static_cast<int64_t>(draw(length, rng));
      const ImageSize target = plan.target();
      // The center is in the image; the square can extend beyond it.
      const auto y = static_cast<int64_t>(rng.below(target.height));
      const auto x = static_cast<int64_t>(rng.below(target.width));
      plan.erase(y - side / 2, x - side / 2, side);
    }
  });
}

TransformPtr random_erasing(float p, Range area, float min_aspect) {
  checked("random_erasing", area);
  TERN_CHECK_VALUE(
      area.low >= 0 && area.high <= 1 && min_aspect > 0 && min_aspect <= 1,
      "[random_erasing] area is {} to {} and min_aspect {}; expected fractions "
      "of the image from 0 to 1, and 0 < min_aspect <= 1.",
      area.low,
      area.high,
      min_aspect);
  return drawn(
      "random_erasing",
      p,
      [area, min_aspect](SamplePlan& plan, SampleRng& rng) {
        const ImageSize target = plan.target();
        const double pixels =
            static_cast<double>(target.height * target.width) * draw(area, rng);
        const float limit = -std::log(min_aspect);
        const double aspect = std::exp(rng.uniform(-limit, limit));
        const ImageSize size = {
            std::min<int64_t>(
                std::llround(std::sqrt(pixels * aspect)),
                target.height - 1),
            std::min<int64_t>(
                std::llround(std::sqrt(pixels / aspect)),
                target.width - 1)};
        const auto y =
            static_cast<int64_t>(rng.below(target.height - size.height));
        const auto x =
            static_cast<int64_t>(rng.below(target.width - size.width));
        PaintedRectangle& rectangle = plan.erase(y, x, size);
        rectangle.noise = true;
        rectangle.noise_key = rng();
      });
}

}  // namespace tern
