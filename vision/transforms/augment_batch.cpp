#include "tern/vision/transforms/augment_batch.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tern/data/error_text.h"
#include "tern/vision/transforms/render_batch.h"

namespace tern {

namespace {

void check_images(const torch::Tensor& images) {
  TORCH_CHECK_VALUE(
      images.scalar_type() == torch::kByte && images.dim() == 4 &&
          (images.size(3) == 1 || images.size(3) == 3),
      fmt::format(
          "[augment_batch] inputs[0] is {}; expected [N, H, W, 1 or 3] kByte. "
          "Put augment_batch before normalize.",
          shapes_of({images})));
}

std::vector<SamplePlan> plans_for(
    const Transforms& transforms,
    const torch::Tensor& images,
    const BatchTransformContext& context,
    Padding padding) {
  const ImageSize size = {images.size(1), images.size(2)};
  std::vector<SamplePlan> plans(static_cast<size_t>(images.size(0)));
  for (size_t i = 0; i < plans.size(); ++i) {
    SampleRng rng = context.rng(static_cast<int64_t>(i));
    make_plan(
        transforms,
        {.resize = ResizeMethod::none, .padding = padding},
        size,
        size,
        rng,
        plans[i]);
  }
  return plans;
}

}  // namespace

BatchTransform augment_batch(
    Transforms transforms,
    Padding padding,
    std::optional<ImageStats> stats) {
  for (const TransformPtr& transform : transforms) {
    TORCH_CHECK_VALUE(
        transform,
        "[augment_batch] a transform is null; leave it out instead.");
  }
  return [transforms = std::move(transforms),
          stats = std::move(stats),
          padding](Batch& batch, const BatchTransformContext& context) {
    torch::Tensor& images = batch.inputs.at(0);
    const bool is_normalized = !stats || images.scalar_type() != torch::kByte;
    if (!context.training && is_normalized) return;
    check_images(images);
    const ImageStats used =
        stats ? stats->with_channels(images.size(3)) : ImageStats();
    const bool to_floats = stats && !context.keeps_bytes;
    if (!context.training) {
      if (to_floats) normalize(used.mean, used.stddev)(batch, context);
      return;
    }
    const auto plans = plans_for(transforms, images, context, padding);
    if (!batch.targets.empty()) {
      torch::Tensor& masks = batch.targets[0];
      if (masks.dim() == 3 && masks.scalar_type() == torch::kLong &&
          masks.sizes() == images.sizes().slice(0, 3)) {
        masks = render_masks(masks, plans);
      }
    }
    if (images.is_cpu()) {
      images = render_on_cpu(images, plans);
      if (to_floats) normalize(used.mean, used.stddev)(batch, context);
      return;
    }
    images = augment_images(
        images.contiguous(),
        changes_of(plans, images.size(3)),
        used.mean,
        used.stddev,
        to_floats ? context.dtype : torch::kByte);
  };
}

}  // namespace tern
