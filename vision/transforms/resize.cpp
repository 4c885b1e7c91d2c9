#include "tern/vision/transforms/resize.h"

#include <algorithm>
#include <cmath>

#include "tern/vision/transforms/drawn.h"

namespace tern {
namespace {

struct Part {
  int64_t top = 0, left = 0;
  ImageSize size;
};

/// The largest part in the middle whose width over height is in `ratio`.
Part middle_part(ImageSize image, Range ratio) {
  const double shape =
      static_cast<double>(image.width) / static_cast<double>(image.height);
  Part part{.size = image};
  if (shape < ratio.low) {
    part.size.height = std::clamp<int64_t>(
        std::llround(static_cast<double>(image.width) / ratio.low),
        1,
        image.height);
  } else if (shape > ratio.high) {
    part.size.width = std::clamp<int64_t>(
        std::llround(static_cast<double>(image.height) * ratio.high),
        1,
        image.width);
  }
  part.top = (image.height - part.size.height) / 2;
  part.left = (image.width - part.size.width) / 2;
  return part;
}

/// As torchvision.transforms.RandomResizedCrop.get_params.
Part random_part(ImageSize image, Range scale, Range ratio, SampleRng& rng) {
  const auto area = static_cast<double>(image.height * image.width);
  const float low = std::log(ratio.low), high = std::log(ratio.high);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * draw(scale, rng);
    const double shape = std::exp(rng.uniform(low, high));
    const ImageSize size = {
        std::llround(std::sqrt(wanted / shape)),
        std::llround(std::sqrt(wanted * shape))};
    if (size.height > 0 && size.width > 0 && size.height <= image.height &&
        size.width <= image.width) {
      // By share, so that an image in another size is cut in the same place.
      const auto place = [&](int64_t room) {
        return static_cast<int64_t>(
            double{rng.uniform()} * static_cast<double>(room + 1));
      };
      const int64_t top = place(image.height - size.height);
      return {top, place(image.width - size.width), size};
    }
  }
  return middle_part(image, ratio);
}

// Numbers are drawn as by the transforms at random, so that those of the
// transforms that follow are the same.
class MiddleCrop final : public Transform {
 public:
  void plan(SamplePlan&, SampleRng& rng) const override {
    for (int i = 0; i < 3; ++i) rng.uniform();
  }
  bool describe(ImagePreprocessing&) const override { return true; }
};

class CentreCrop final : public Transform {
 public:
  explicit CentreCrop(float margin) : margin_(margin) {}

  void plan(SamplePlan& plan, SampleRng& rng) const override {
    rng.uniform();
    const ImageSize image = plan.size(), target = plan.target();
    const double scale =
        (1 + margin_) * std::max(
                            static_cast<double>(target.height) /
                                static_cast<double>(image.height),
                            static_cast<double>(target.width) /
                                static_cast<double>(image.width));
    const auto scaled = [&](int64_t size, int64_t least) {
      return std::max<int64_t>(
          least,
          std::llround(static_cast<double>(size) * scale));
    };
    plan.resize(
        {scaled(image.height, target.height),
         scaled(image.width, target.width)});
  }
  bool resizes() const override { return true; }
  bool describe(ImagePreprocessing& what) const override {
    what.resize = "centre_crop";
    what.margin = margin_;
    return true;
  }

 private:
  float margin_;
};

}  // namespace

TransformPtr rand_crop(bool is_random) {
  if (!is_random) return std::make_shared<const MiddleCrop>();
  return drawn("rand_crop", 1, [](SamplePlan& plan, SampleRng& rng) {
    const float row = rng.uniform(), column = rng.uniform();
    plan.set_crop_position(row, column);
  });
}

TransformPtr random_resized_crop(Range scale, Range ratio, float p) {
  checked("random_resized_crop", scale, 0);
  checked("random_resized_crop", ratio, 0);
  TORCH_CHECK_VALUE(
      scale.high <= 1,
      fmt::format(
          "[random_resized_crop] scale goes up to {}; expected at most 1, the "
          "whole image.",
          scale.high));
  return drawn(
      "random_resized_crop",
      1,
      [scale, ratio, p](SamplePlan& plan, SampleRng& rng) {
        const bool is_random = rng.uniform() < p;
        const Part part = is_random
                              ? random_part(plan.size(), scale, ratio, rng)
                              : middle_part(plan.size(), ratio);
        plan.crop(
            static_cast<double>(part.top),
            static_cast<double>(part.left),
            part.size);
        plan.resize(plan.target());
      },
      /*resizes=*/true);
}

TransformPtr centre_crop(float margin) {
  TORCH_CHECK_VALUE(
      margin >= 0,
      fmt::format("[centre_crop] margin is {}; expected 0 or more.", margin));
  return std::make_shared<const CentreCrop>(margin);
}

}  // namespace tern
