#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/kernels/augment_images.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Converts a matrix between pixels of images of one size to the units of
/// grid_sample without aligned corners, where an image spans -1 to 1.
Matrix3 in_grid_units(const Matrix3& matrix, double height, double width);
/// Returns at::grid_sampler's number of a padding.
int64_t grid_padding(Padding padding);

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

/// Renders masks, [N, H, W] kLong, on their device with nearest-neighbour
/// sampling.
torch::Tensor render_masks(
    const torch::Tensor& masks,
    const std::vector<SamplePlan>& plans);

}  // namespace tern
