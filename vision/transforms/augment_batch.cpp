#include "tern/vision/transforms/augment_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/parallel_for.h"
#include "tern/vision/decode/sample_pixels.h"

namespace tern {

namespace {

using Plans = std::vector<SamplePlan>;

std::vector<double> spread(
    const std::vector<double>& values,
    int64_t channels) {
  const int64_t count = std::ssize(values);
  if (count == channels) return values;
  TERN_CHECK_VALUE(
      count == 1 || channels == 1,
      "[ImageStats] got {} values for {} channels; expected one per channel, "
      "or one for all.",
      count,
      channels);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) /
                      static_cast<double>(count);
  return std::vector<double>(channels, mean);
}

torch::ScalarType integers_as_wide_as(const torch::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return torch::kByte;
    case 2:
      return torch::kShort;
    case 4:
      return torch::kInt;
    default:
      return torch::kLong;
  }
}

void check_images(const torch::Tensor& images) {
  TERN_CHECK_VALUE(
      images.scalar_type() == torch::kByte && images.dim() == 4 &&
          (images.size(3) == 1 || images.size(3) == 3),
      "[augment_batch] inputs[0] is {}; expected [N, H, W, 1 or 3] kByte. Add "
      "augment_batch before normalize.",
      shapes_of({images}));
}

bool moves_pixels(const SamplePlan& plan) {
  const Warp warp = plan.warp();
  return warp.matrix != Matrix3{} || warp.jitter_x != 0 || warp.jitter_y != 0;
}

// True for [N, H, W] or [N, 1, H, W] with images [N, H, W, C].
bool is_mask(const torch::Tensor& target, const torch::Tensor& images) {
  const auto size = images.sizes().slice(0, 3);
  return target.sizes() == size || (target.dim() == 4 && target.size(1) == 1 &&
                                    target.squeeze(1).sizes() == size);
}

// Targets such as masks of a different size, further images or boxes without a
// declared target type cannot be moved with the pixels.
void check_is_not_spatial(
    const torch::Tensor& target,
    const torch::Tensor& images) {
  TERN_CHECK_VALUE(
      target.dim() < 3,
      "[augment_batch] a target is {} for images {}, whose pixels are moved; "
      "expected [N], [N, K], or masks [N, H, W] or [N, 1, H, W] of the images' "
      "size. Declare boxes or points as such, or augment pairs of images in "
      "the dataset or in your own batch transform.",
      shapes_of({target}),
      shapes_of({images}));
}

/// Transforms the targets of a batch along with its images. Creates new
/// tensors, because the data loader reuses the memory of the old tensors.
void move_targets(
    Tensors& targets,
    const torch::Tensor& images,
    const Plans& plans,
    TargetKind kind,
    const AnnotationOptions& annotations) {
  if (kind == TargetKind::boxes || kind == TargetKind::points) {
    for (torch::Tensor& target : targets) {
      target = target.clone(at::MemoryFormat::Contiguous);
    }
    std::vector<Matrix3> matrices;
    for (const SamplePlan& plan : plans) {
      matrices.push_back(plan.result_from_original());
    }
    const ImageSize size = {images.size(1), images.size(2)};
    const auto move = kind == TargetKind::boxes ? move_boxes : move_points;
    move(targets, matrices, size, annotations);
    return;
  }
  for (torch::Tensor& target : targets) {
    if (is_mask(target, images)) {
      target = render_masks(target, plans);
    } else {
      check_is_not_spatial(target, images);
    }
  }
}

Plans plans_for(
    const Transforms& transforms,
    const torch::Tensor& images,
    const BatchTransformContext& context,
    Padding padding) {
  const ImageSize size = {images.size(1), images.size(2)};
  Plans plans(static_cast<size_t>(images.size(0)));
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

ImageStats ImageStats::with_channels(int64_t channels) const {
  TERN_CHECK_VALUE(
      !mean.empty() && mean.size() == stddev.size(),
      "[ImageStats] mean has {} values and stddev has {}; expected the same "
      "number, and at least one.",
      mean.size(),
      stddev.size());
  return {spread(mean, channels), spread(stddev, channels)};
}

Padding padding_for(TargetKind target, std::optional<Padding> padding) {
  const bool has_places =
      target == TargetKind::boxes || target == TargetKind::points;
  return padding.value_or(has_places ? Padding::zeros : Padding::reflection);
}

BatchTransform augment_batch(
    Transforms transforms,
    std::optional<Padding> padding,
    std::optional<ImageStats> stats,
    TargetKind target,
    const AnnotationOptions& annotations) {
  check_transforms("augment_batch", transforms);
  check_annotation_options("augment_batch", annotations);
  return [transforms = std::move(transforms),
          stats = std::move(stats),
          padding = padding_for(target, padding),
          target,
          annotations](Batch& batch, const BatchTransformContext& context) {
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
    if (std::ranges::any_of(plans, moves_pixels)) {
      move_targets(batch.targets, images, plans, target, annotations);
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

torch::Tensor sampling_grid(
    const Plans& plans,
    int64_t height,
    int64_t width,
    torch::Device device) {
  const int64_t count = std::ssize(plans);
  torch::Tensor matrices = torch::empty({count, 3, 3});
  float* values = matrices.mutable_data_ptr<float>();
  for (const SamplePlan& plan : plans) {
    const Matrix3 matrix = in_grid_units(plan.warp().matrix, {height, width});
    values = std::copy(matrix.values.begin(), matrix.values.end(), values);
  }
  const auto options = torch::TensorOptions(device).dtype(torch::kFloat);
  const auto centers = [&](int64_t size) {
    return (torch::arange(size, options) * 2 + 1) / size - 1;
  };
  const torch::Tensor x = centers(width).expand({height, width});
  const torch::Tensor y = centers(height).view({-1, 1}).expand({height, width});
  const torch::Tensor points =
      torch::stack({x, y, torch::ones_like(x)}, -1).view({1, -1, 3});
  const torch::Tensor mapped =
      torch::matmul(points, matrices.to(device).transpose(1, 2));
  torch::Tensor grid = (mapped.slice(2, 0, 2) / mapped.slice(2, 2, 3))
                           .view({count, height, width, 2});
  if (std::ranges::any_of(plans, [](const SamplePlan& plan) {
        return plan.warp().jitter_x != 0 || plan.warp().jitter_y != 0;
      })) {
    torch::Tensor shifts = torch::zeros({count, height, width, 2});
    float* shift = shifts.mutable_data_ptr<float>();
    for (const SamplePlan& plan : plans) {
      const Warp warp = plan.warp();
      for (int64_t row = 0; row < height; ++row) {
        for (int64_t at = 0; at < width; ++at, shift += 2) {
          const auto [across, down] = warp_jitter(warp.jitter_key, row, at);
          shift[0] = across * warp.jitter_x * 2 / static_cast<float>(width);
          shift[1] = down * warp.jitter_y * 2 / static_cast<float>(height);
        }
      }
    }
    grid = grid + shifts.to(device);
  }
  return grid;
}

std::vector<ImageChange> changes_of(const Plans& plans, int64_t channels) {
  std::vector<ImageChange> changes;
  for (const SamplePlan& plan : plans) {
    TORCH_CHECK_VALUE(
        plan.pixel_functions.empty(),
        "[augment_batch] a transform changes pixels by a function, which runs "
        "only on the CPU; expected transforms that run on the device. Pass it "
        "to the loader, as `transforms`.");
    const Lighting& lighting = plan.lighting;
    ImageChange change{.warp = plan.warp()};
    change.mixes_colors = channels == 3 && !lighting.is_table();
    if (change.mixes_colors) {
      change.scale = lighting.scale;
      change.shift = lighting.shift;
      change.saturation = lighting.saturation;
      change.hue = lighting.hue;
      change.table = Lighting{.tones = lighting.tones}.table();
    } else {
      change.table = lighting.table();
    }
    change.rectangles = plan.erasures;
    changes.push_back(std::move(change));
  }
  return changes;
}

torch::Tensor render_on_cpu(const torch::Tensor& images, const Plans& plans) {
  const torch::Tensor source = images.contiguous();
  torch::Tensor rendered = torch::empty_like(source);
  const ImageSize size = {source.size(1), source.size(2)};
  const int64_t channels = source.size(3);
  const int64_t bytes = size.height * size.width * channels;
  const uint8_t* from = source.const_data_ptr<uint8_t>();
  uint8_t* to = rendered.mutable_data_ptr<uint8_t>();
  const int64_t count = std::ssize(plans);
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SamplePlan& plan = plans[i];
      const PixelView image =
          view_of(from + i * bytes, size, channels, from + count * bytes);
      sample_pixels(image, plan.warp(), size, to + i * bytes);
      plan.finish_pixels({to + i * bytes, size, channels});
    }
  });
  return rendered;
}

torch::Tensor render_masks(const torch::Tensor& masks, const Plans& plans) {
  if (plans.empty()) return masks;
  const int64_t count = masks.size(0);
  const int64_t height = masks.size(-2), width = masks.size(-1);
  // 1-based number of the source pixel for each pixel of the result; 0:
  // outside. Integers up to 2^24 are exact in float.
  const auto type = height * width < (1 << 24) ? torch::kFloat : torch::kDouble;
  const torch::Tensor numbers =
      torch::arange(1, height * width + 1, masks.device()).to(type);
  const torch::Tensor shown =
      at::grid_sampler(
          numbers.view({1, 1, height, width}).expand({count, -1, -1, -1}),
          sampling_grid(plans, height, width, masks.device()).to(type),
          /*interpolation_mode=*/1,
          grid_padding(plans[0].warp().padding),
          /*align_corners=*/false)
          .to(torch::kLong)
          .view({count, -1});
  // gather does not support all dtypes, so masks are viewed as integers of the
  // same width.
  const torch::Tensor bits = masks.view(integers_as_wide_as(masks));
  return bits.reshape({count, -1})
      .gather(1, (shown - 1).clamp_min(0))
      .masked_fill(shown == 0, 0)
      .view(masks.sizes())
      .view(masks.scalar_type());
}

}  // namespace tern
