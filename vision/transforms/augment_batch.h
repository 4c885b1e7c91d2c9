#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/kernels/images/augment_images.h"
#include "tern/vision/transforms/move_targets.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Mean and standard deviation of pixel values in 0..1, with one value per
/// channel, or a single value for all channels.
struct ImageStats {
  std::vector<double> mean, stddev;

  /// Returns one value per channel; for a gray image, averages the values of
  /// RGB.
  ImageStats with_channels(int64_t channels) const;
};

namespace stats {

/// The values used by torchvision's pretrained models and fastai.
inline ImageStats imagenet() {
  return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}
inline ImageStats cifar() {
  return {{0.491, 0.482, 0.447}, {0.247, 0.243, 0.261}};
}
inline ImageStats mnist() {
  return {{0.131}, {0.308}};
}
/// No normalization; values stay in 0..1.
inline ImageStats none() {
  return {{0.0}, {1.0}};
}

}  // namespace stats

/// Returns a batch transform that augments every training batch on its device,
/// with separate random numbers per sample. It changes:
///
/// - inputs[0]: images [N, H, W, 1 or 3] kByte.
/// - targets that are masks, [N, H, W] or [N, 1, H, W] of any dtype, with
///   nearest-neighbor sampling. Lighting and erasing do not apply to them.
/// - targets that are boxes or points, which are moved, clipped and dropped as
///   in the data loader.
///
///   data.batch_transforms = {
///       augment_batch(get_transforms().train, {}, stats::imagenet())};
///
/// On a GPU, geometry, lighting, erasing and normalization run in a single
/// kernel launch (`augment_images`). On a CPU, the data loader's code runs on
/// all threads. The results agree up to rounding, except that only the CPU
/// smooths an image that a transform shrinks to less than half its size.
/// Transforms with `pixel_functions` need a CPU.
///
/// \param padding  Pixels beyond an image; unset: `reflection`, or `zeros` if
///                 `target` is boxes or points.
/// \param stats  Normalizes the images as `normalize` does, in evaluation too:
///               one value per channel, or a single value for all. If not set,
///               images stay kByte for later transforms.
/// \param target  Type of the targets. Boxes and points have the form of
///                BoxTargets and PointTargets; masks are recognized by their
///                shape.
/// \param annotations  How boxes and points are moved with the images.
/// \throws c10::ValueError from the returned transform for any other images, or
///         if pixels are moved and a target has three or more dimensions but is
///         neither a mask nor boxes or points.
BatchTransform augment_batch(
    Transforms transforms,
    std::optional<Padding> padding = {},
    std::optional<ImageStats> stats = {},
    TargetKind target = TargetKind::category,
    const AnnotationOptions& annotations = {});

// ---- Internal parts ----

/// Returns `padding`, or if it is not set, the default for this kind of target:
/// `zeros` for boxes and points, because a reflected object has no box,
/// otherwise `reflection`.
Padding padding_for(TargetKind target, std::optional<Padding> padding);

/// Converts a matrix in pixels, between images of the same size, to the units
/// of grid_sample with align_corners=False, in which an image spans -1 to 1.
inline Matrix3 in_grid_units(const Matrix3& matrix, ImageSize size) {
  return units_of_pixels(size) * matrix * pixels_of_units(size);
}
/// Returns at::grid_sampler's padding mode.
inline int64_t grid_padding(Padding padding) {
  static_assert(static_cast<int>(Padding::border) == 1);
  return static_cast<int64_t>(padding);
}

/// Renders [N, H, W, 1 or 3] kByte images on the CPU with the data loader's
/// code, with one plan per image. Returns the same shape.
torch::Tensor render_on_cpu(
    const torch::Tensor& images,
    const std::vector<SamplePlan>& plans);

/// Converts plans for `augment_images`, which runs as a single launch on a GPU.
/// Unlike the CPU code, it does not smooth images that shrink to less than
/// half, and it rounds to bytes before applying tones.
/// \throws c10::ValueError if a plan has pixel functions, which need a CPU.
std::vector<ImageChange> changes_of(
    const std::vector<SamplePlan>& plans,
    int64_t channels);

/// Returns the source position of each output pixel for at::grid_sampler: [N,
/// H, W, 2] kFloat on `device`.
torch::Tensor sampling_grid(
    const std::vector<SamplePlan>& plans,
    int64_t height,
    int64_t width,
    torch::Device device);

/// Warps masks [N, H, W] or [N, 1, H, W] of any dtype on their device, with
/// nearest-neighbor sampling.
torch::Tensor render_masks(
    const torch::Tensor& masks,
    const std::vector<SamplePlan>& plans);

}  // namespace tern
