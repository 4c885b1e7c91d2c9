#include "tern/vision/transforms/augment_batch.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/vision/transforms/render_batch.h"

namespace tern {

BatchTransform augment_batch(Transforms transforms, Padding padding) {
  for (const TransformPtr& transform : transforms) {
    TORCH_CHECK_VALUE(
        transform,
        "[augment_batch] a transform is null; leave it out instead.");
  }
  return [transforms = std::move(transforms),
          padding](Batch& batch, const BatchTransformContext& context) {
    if (!context.training) {
      return;
    }
    torch::Tensor& images = batch.inputs.at(0);
    TORCH_CHECK_VALUE(
        images.scalar_type() == torch::kByte && images.dim() == 4 &&
            (images.size(3) == 1 || images.size(3) == 3),
        fmt::format(
            "[augment_batch] inputs[0] is [{}] {}; expected [N, H, W, 1 or 3] "
            "kByte. Put augment_batch before normalize.",
            fmt::join(images.sizes(), ", "),
            c10::toString(images.scalar_type())));
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
    images = images.is_cpu() ? render_on_cpu(images, plans)
                             : render_with_tensors(images, plans);
    if (batch.targets.empty()) {
      return;
    }
    torch::Tensor& masks = batch.targets[0];
    if (masks.dim() == 3 && masks.scalar_type() == torch::kLong &&
        masks.sizes() == images.sizes().slice(0, 3)) {
      masks = render_masks(masks, plans);
    }
  };
}

}  // namespace tern
