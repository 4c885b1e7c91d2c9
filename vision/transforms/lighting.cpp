#include "tern/vision/transforms/lighting.h"

#include <cmath>

#include "tern/vision/transforms/drawn.h"

namespace tern {

TransformPtr brightness(Range change, float p) {
  checked("brightness", change, 0);
  TORCH_CHECK_VALUE(
      change.high < 1,
      fmt::format(
          "[brightness] the range ends at {}; expected below 1, which is "
          "white.",
          change.high));
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
  TORCH_CHECK_VALUE(
      max >= 0 && max < 1,
      fmt::format("[saturation] max is {}; expected 0 to below 1.", max));
  const float range = -std::log(1 - max);
  return drawn("saturation", p, [range](SamplePlan& plan, SampleRng& rng) {
    plan.lighting.saturation *= std::exp(rng.uniform(-range, range));
  });
}

TransformPtr hue(float max, float p) {
  TORCH_CHECK_VALUE(
      max >= 0 && max <= 0.5f,
      fmt::format(
          "[hue] max is {}; expected 0 to 0.5, half of the circle.",
          max));
  return drawn("hue", p, [max](SamplePlan& plan, SampleRng& rng) {
    plan.lighting.hue += rng.uniform(-max, max);
  });
}

TransformPtr channel_order(std::array<int, 3> order) {
  for (const int channel : order) {
    TORCH_CHECK_VALUE(
        channel >= 0 && channel < 3,
        fmt::format(
            "[channel_order] there is no channel {}; expected 0, 1 or 2.",
            channel));
  }
  return drawn("channel_order", 1, [order](SamplePlan& plan, SampleRng&) {
    plan.pixel_functions.emplace_back([order](const MutablePixels& image) {
      const int64_t count =
          image.channels == 3 ? image.size.height * image.size.width : 0;
      for (int64_t i = 0; i < count; ++i) {
        uint8_t* pixel = image.pixels + i * 3;
        const uint8_t from[3] = {pixel[0], pixel[1], pixel[2]};
        for (int c = 0; c < 3; ++c) {
          pixel[c] = from[order[c]];
        }
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

}  // namespace tern
