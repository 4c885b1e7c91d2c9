#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/metric.h"

namespace tern {

// The losses of BackgroundMattingV2 (Lin et al., "Real-Time High-Resolution
// Background Matting", CVPR 2021; its train_base.py and train_refine.py), for
// `LearnerOptions::loss`. Targets are pha [N, 1, H, W] and fgr [N, 3, H, W],
// floating in 0..1; the foreground counts where alpha is not 0. Both throw
// c10::ValueError for missing outputs or targets or other shapes.

/// L1 of alpha, of its Sobel gradient and of the foreground, and the squared
/// error of the expected error.
///
///   .loss = tern::matting_base_loss
///
/// \param outputs  As MattingBase: pha [N, 1, H, W], fgr [N, 3, H, W], err [N,
///                 1, H, W]; further outputs are ignored.
torch::Tensor matting_base_loss(const Tensors& outputs, const Tensors& targets);

/// The same at both sizes of the refining network; the expected error is that
/// of the upsampled coarse alpha.
///
/// \param outputs  As MattingRefine: pha, fgr of full size, then pha_sm [N, 1,
///                 h, w], fgr_sm [N, 3, h, w], err_sm [N, 1, h, w]; further
///                 outputs are ignored.
torch::Tensor matting_refine_loss(
    const Tensors& outputs,
    const Tensors& targets);

/// Computes the Sobel gradient magnitude of each channel as
/// kornia.filters.sobel: sqrt(gx^2 + gy^2 + 1e-6) with 3 x 3 kernels divided by
/// 8, edges repeated.
/// \param x  [N, C, H, W] floating. \return The same shape and type.
torch::Tensor sobel(const torch::Tensor& x);

// Errors of an alpha, over all its pixels; smaller is better. Each takes two
// alphas [N, 1, H, W], floating in 0..1, and returns [N] kDouble on their
// device, one value per image.
//
// Sums are in thousands of pixels, so they grow with the image: compare only
// images of one size. Rhemann et al., "A Perceptually Motivated Online
// Benchmark for Image Matting", CVPR 2009, with the constants of the common
// code (Xu et al., "Deep Image Matting", 2017). They sum over the unknown part
// of a trimap, which background matting does not have.
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

/// Sum of the differences in connectivity to the largest region that is opaque
/// in both, / 1000: levels 0.1 apart, 4 neighbors, and distances below 0.15
/// counted as 0. Computed on the CPU, so it synchronizes with the device.
torch::Tensor alpha_connectivity_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth);

/// Returns the four as metrics of the first output and the first target,
/// averaged over all images: "sad", "mse", "grad" and "conn".
std::vector<Metric> matting_metrics();

}  // namespace tern
