#pragma once

#include <torch/types.h>

#include "tern/vision/decode/sample_pixels.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

inline torch::Tensor random_picture(int64_t height, int64_t width) {
  torch::manual_seed(7);
  return torch::randint(256, {height, width, 3}, torch::kByte);
}

/// Returns the plan of one sample of a run with `seed`.
/// \param target  If unset: the source size.
inline SamplePlan planned(
    const Transforms& transforms,
    ImageSize source,
    uint64_t seed = 1,
    ImageSize target = {},
    const TransformOptions& options = {}) {
  SamplePlan plan;
  SampleRng rng(seed, 0, 0);
  make_plan(
      transforms,
      options,
      source,
      target.height > 0 ? target : source,
      rng,
      plan);
  return plan;
}

/// Returns the transformed [H, W, C] kByte.
inline torch::Tensor rendered(
    const torch::Tensor& image,
    const Transforms& transforms,
    uint64_t seed = 1,
    ImageSize target = {},
    const TransformOptions& options = {}) {
  const ImageSize source = {image.size(0), image.size(1)};
  const SamplePlan plan = planned(transforms, source, seed, target, options);
  const ImageSize size = plan.target();
  const int64_t channels = image.size(2);
  torch::Tensor out =
      torch::empty({size.height, size.width, channels}, torch::kByte);
  auto* pixels = out.mutable_data_ptr<uint8_t>();
  const auto* from = image.const_data_ptr<uint8_t>();
  sample_pixels(
      {.pixels = from,
       .height = source.height,
       .width = source.width,
       .channels = channels,
       .stride = source.width * channels,
       .end = from + image.numel()},
      plan.warp(),
      size,
      pixels);
  plan.finish_pixels({pixels, size, channels});
  return out;
}

}  // namespace tern
