#include "tern/vision/visible_batch.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern {
namespace {

bool is_bytes(const Batch& batch) {
  return batch.inputs.at(0).scalar_type() == torch::kByte;
}

}  // namespace

VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments) {
  if (is_bytes(batch) && augments) batch = batch.to(data.device);
  for (const BatchTransform& transform : data.batch_transforms) {
    if (!is_bytes(batch) || !augments) break;
    BatchTransformContext context{
        .training = true,
        .seed = data.train->options().seed};
    Batch usual = batch, next = batch;
    transform(usual, context);
    context.keeps_bytes = true;
    transform(next, context);
    if (!is_bytes(next)) break;
    batch = std::move(next);
    if (!is_bytes(usual)) break;  // what follows is made for floats
  }
  torch::Tensor images = batch.inputs[0].detach().cpu();
  const int64_t channels =
      images.dim() == 4 ? images.size(is_bytes(batch) ? 3 : 1) : int64_t{0};
  TORCH_CHECK_VALUE(
      channels == 1 || channels == 3,
      fmt::format(
          "[show] the inputs are [{}] {}; expected images, [N, H, W, 1 or 3] "
          "kByte or [N, 1 or 3, H, W] floating.",
          fmt::join(images.sizes(), ", "),
          c10::toString(images.scalar_type())));
  if (!is_bytes(batch)) {
    images = images.to(torch::kFloat);
    const double low = images.min().item<double>();
    const double high = images.max().item<double>();
    if (low < 0 || high > 1) {
      images = (images - low) / (high > low ? high - low : 1);
    }
    images = images.mul(255).round().to(torch::kByte).permute({0, 2, 3, 1});
  }
  // Batch memory is used again by the loader.
  VisibleBatch visible{images.clone(at::MemoryFormat::Contiguous), {}};
  if (!batch.targets.empty()) visible.targets = batch.targets[0].cpu().clone();
  return visible;
}

}  // namespace tern
