#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/kernels/augment_images.h"
#include "tern/vision/transforms/sample_plan.h"

namespace tern {

/// A matrix between pixels, of pictures of one size, in the units of
/// grid_sample without aligned corners, where a picture reaches from -1 to 1.
Matrix3 in_grid_units(const Matrix3& matrix, double height, double width);
/// at::grid_sampler's number for a padding.
int64_t grid_padding(Padding padding);

/// Makes the images that plans describe, one plan for each of
/// [N, H, W, 1 or 3] kByte on a CPU; of the same shape. By the loops of the
/// loader.
torch::Tensor render_on_cpu(
    const torch::Tensor& images,
    const std::vector<SamplePlan>& plans);

/// The same for `augment_images`, which a GPU does in one launch. What shrinks
/// an image to less than half is not smoothed there, and values between those
/// of bytes are rounded before tones. \throws c10::ValueError if a plan has
/// functions of pixels, which need a CPU.
std::vector<ImageChange> changes_of(
    const std::vector<SamplePlan>& plans,
    ImageSize size,
    int64_t channels);

/// [N, H, W, 2] kFloat on `device`: where each pixel comes from, for
/// at::grid_sampler.
torch::Tensor sampling_grid(
    const std::vector<SamplePlan>& plans,
    int64_t height,
    int64_t width,
    torch::Device device);

/// Picks the class numbers of [N, H, W] kLong masks; on their device.
torch::Tensor render_masks(
    const torch::Tensor& masks,
    const std::vector<SamplePlan>& plans);

}  // namespace tern
