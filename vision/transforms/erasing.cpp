#include "tern/vision/transforms/erasing.h"

#include <cmath>

#include "tern/vision/transforms/drawn.h"

namespace tern {

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
      // The middle lies in the image, the square may reach beyond.
      const auto y = static_cast<int64_t>(rng.below(target.height));
      const auto x = static_cast<int64_t>(rng.below(target.width));
      plan.erasures.push_back(
          {.at = {y - side / 2, x - side / 2}, .size = {side, side}});
    }
  });
}

TransformPtr random_erasing(float p, Range area, float min_aspect) {
  checked("random_erasing", area);
  TORCH_CHECK_VALUE(
      area.low >= 0 && area.high <= 1 && min_aspect > 0 && min_aspect <= 1,
      fmt::format(
          "[random_erasing] area is {} to {} and min_aspect {}; expected "
          "shares of the image from 0 to 1, and an aspect above 0 and at most "
          "1.",
          area.low,
          area.high,
          min_aspect));
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
        plan.erasures.push_back(
            {.at = {y, x}, .size = size, .noise = true, .noise_key = rng()});
      });
}

}  // namespace tern
