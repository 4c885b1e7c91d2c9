#include "tern/vision/transforms/transform.h"

#include <algorithm>
#include <cmath>

namespace tern {
namespace {

/// The size, in the image's proportions, that covers or fits into `target`.
ImageSize proportional(ImageSize image, ImageSize target, bool covers) {
  const double across =
      static_cast<double>(target.width) / static_cast<double>(image.width);
  const double down =
      static_cast<double>(target.height) / static_cast<double>(image.height);
  const double scale = covers ? std::max(across, down) : std::min(across, down);
  const auto scaled = [&](int64_t size) {
    return std::max<int64_t>(
        1,
        std::llround(static_cast<double>(size) * scale));
  };
  return {scaled(image.height), scaled(image.width)};
}

}  // namespace

void make_plan(
    const Transforms& transforms,
    const TransformOptions& options,
    ImageSize source,
    ImageSize target,
    SampleRng& rng,
    SamplePlan& plan) {
  plan.begin(source, target, options.padding);
  const bool is_resized = std::any_of(
      transforms.begin(),
      transforms.end(),
      [](const TransformPtr& transform) { return transform->resizes(); });
  if (!is_resized && source != target) {
    switch (options.resize) {
      case ResizeMethod::squish:
        plan.resize(target);
        break;
      case ResizeMethod::crop:
      case ResizeMethod::pad:
        plan.resize(
            proportional(source, target, options.resize == ResizeMethod::crop));
        break;
      case ResizeMethod::none:
        break;
    }
  }
  for (const TransformPtr& transform : transforms) {
    transform->plan(plan, rng);
  }
  plan.finish();
}

}  // namespace tern
