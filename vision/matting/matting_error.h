#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/learner/metric.h"

namespace tern {

// How far an alpha is from the true one, over all its pixels; smaller is
// better. Each takes two alphas [N, 1, H, W], floating in 0..1, and gives
// [N] kDouble on their device, a number for each picture.
//
// Sums are in thousands of pixels, so they grow with the picture: compare only
// pictures of one size. Rhemann et al., "A Perceptually Motivated Online
// Benchmark for Image Matting", CVPR 2009, with the constants of the code that
// the field uses (Xu et al., "Deep Image Matting", 2017). They sum over the
// unknown part of a trimap, which background matting has none of.
//
// All throw c10::ValueError for other shapes or types.

/// Sum of the absolute differences, / 1000.
torch::Tensor alpha_sad(const torch::Tensor& pha, const torch::Tensor& truth);

/// Mean of the squared differences.
torch::Tensor alpha_mse(const torch::Tensor& pha, const torch::Tensor& truth);

/// Sum of the squared differences of the gradients' magnitudes, / 1000. The
/// gradient is that of a Gaussian with sigma 1.4, whose filters have norm 1,
/// of alphas that are stretched to 0..1 first; edges repeated.
torch::Tensor alpha_gradient_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth);

/// Sum of the differences in how well pixels hang together with the largest
/// region that is opaque in both, / 1000: levels 0.1 apart, 4 neighbours, and
/// distances below 0.15 counted as none. Computed on the CPU, so that it waits
/// for the device.
torch::Tensor alpha_connectivity_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth);

/// The four as metrics of the first output and the first target, each the mean
/// over all pictures: "sad", "mse", "grad" and "conn".
std::vector<Metric> matting_metrics();

}  // namespace tern
