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

/// Mean and standard deviation of pixel values in 0..1: one of each per
/// channel, or one for all channels.
struct ImageStats {
  std::vector<double> mean, stddev;

  /// Returns one value per channel. Values of colors are averaged for gray.
  ImageStats with_channels(int64_t channels) const;
};

namespace stats {

/// The values of torchvision's pretrained models and of fastai.
inline ImageStats imagenet() {
  return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}
inline ImageStats cifar() {
  return {{0.491, 0.482, 0.447}, {0.247, 0.243, 0.261}};
}
inline ImageStats mnist() {
  return {{0.131}, {0.308}};
}
/// No normalization: values stay in 0..1.
inline ImageStats none() {
  return {{0.0}, {1.0}};
}

}  // namespace stats

/// Applies `transforms` to every training batch on its device, with separate
/// random numbers per sample: to inputs[0], [N, H, W, 1 or 3] kByte, and to
/// masks with nearest-neighbor sampling: targets [N, H, W] or [N, 1, H, W] of
/// any dtype. Boxes and points are moved, clipped and dropped as in the loader.
/// Lighting and erasing change images alone.
///
///   data.batch_transforms = {
///       augment_batch(
///           get_transforms().train, Padding::reflection, stats::imagenet())};
///
/// On a GPU geometry, lighting, erasing and normalization are one kernel launch
/// (`augment_images`); on a CPU the loader's code runs on all threads. Results
/// agree up to rounding, unless a transform shrinks an image to less than half,
/// which only the CPU smooths. Transforms with `pixel_functions` need a CPU.
///
/// \param stats  Normalizes the images, in evaluation too, as `normalize`: one
///               value per channel, or one for all. Unset: they stay kByte for
///               later transforms.
/// \param target  What the targets are. Boxes and points are those of BoxTargets
///                and PointTargets; other targets are recognized by their shape.
/// \param annotations  How boxes and points follow the images.
/// \throws c10::ValueError, when it is called, for any other images, and where
///         pixels are moved for other targets of three or more dimensions.
BatchTransform augment_batch(
    Transforms transforms,
    Padding padding = Padding::reflection,
    std::optional<ImageStats> stats = {},
    TargetKind target = TargetKind::category,
    const AnnotationOptions& annotations = {});

// ---- Its parts ----

/// Converts a matrix between pixels of images of one size to the units of
/// grid_sample without aligned corners, where an image spans -1 to 1.
inline Matrix3 in_grid_units(const Matrix3& matrix, ImageSize size) {
  return units_of_pixels(size) * matrix * pixels_of_units(size);
}
/// Returns at::grid_sampler's number of a padding.
inline int64_t grid_padding(Padding padding) {
  static_assert(static_cast<int>(Padding::border) == 1);
  return static_cast<int64_t>(padding);
}

/// Renders one plan per image of [N, H, W, 1 or 3] kByte on the CPU with the
/// loader's code; returns the same shape.
torch::Tensor render_on_cpu(
    const torch::Tensor& images,
    const std::vector<SamplePlan>& plans);

/// Converts plans for `augment_images`, one launch on a GPU, which does not
/// smooth an image that shrinks to less than half and rounds to bytes before
/// tones.
/// \throws c10::ValueError if a plan has pixel functions, which need a CPU.
std::vector<ImageChange> changes_of(
    const std::vector<SamplePlan>& plans,
    int64_t channels);

/// Returns the source position of each pixel for at::grid_sampler: [N, H, W, 2]
/// kFloat on `device`.
torch::Tensor sampling_grid(
    const std::vector<SamplePlan>& plans,
    int64_t height,
    int64_t width,
    torch::Device device);

/// Renders masks, [N, H, W] or [N, 1, H, W] of any dtype, on their device with
/// nearest-neighbor sampling.
torch::Tensor render_masks(
    const torch::Tensor& masks,
    const std::vector<SamplePlan>& plans);

}  // namespace tern
