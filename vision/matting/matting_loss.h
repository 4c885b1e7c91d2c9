#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/metric.h"

namespace tern {

// The losses of BackgroundMattingV2 (Lin et al., "Real-Time High-Resolution
// Background Matting", CVPR 2021; its train_base.py and train_refine.py), for
// `LearnerOptions::loss`. Targets are pha [N, 1, H, W] and fgr [N, 3, H, W],
// floating in 0..1. The foreground contributes to the loss only where alpha is
// not 0. Both functions throw c10::ValueError for missing outputs or targets
// and for any other shapes.

/// Returns the L1 losses of alpha, of its Sobel gradient and of the foreground,
/// plus the squared error of `err`, which predicts the error of alpha.
///
///   .loss = tern::matting_base_loss
///
/// \param outputs  As from MattingBase: pha [N, 1, H, W], fgr [N, 3, H, W], err
///                 [N, 1, H, W]; further outputs are ignored.
torch::Tensor matting_base_loss(const Tensors& outputs, const Tensors& targets);

/// Returns the same loss at both resolutions of the refining network. The
/// predicted error is compared with the error of the upsampled coarse alpha.
///
/// \param outputs  As from MattingRefine: pha and fgr at full size, then pha_sm
///                 [N, 1, h, w], fgr_sm [N, 3, h, w], err_sm [N, 1, h, w];
///                 further outputs are ignored.
torch::Tensor matting_refine_loss(
    const Tensors& outputs,
    const Tensors& targets);

/// Returns the Sobel gradient magnitude of each channel, like
/// kornia.filters.sobel: sqrt(gx^2 + gy^2 + 1e-6), with 3 x 3 kernels divided
/// by 8 and repeated edges.
/// \param x  [N, C, H, W] floating-point.
/// \return   Same shape and dtype.
torch::Tensor sobel(const torch::Tensor& x);

// Errors of a predicted alpha over all its pixels; smaller is better. Each
// takes two alphas [N, 1, H, W], floating in 0..1, and returns [N] kDouble on
// their device, one value per image.
//
// The errors are sums over pixels divided by 1000 (except the MSE), so they
// grow with the image size. Compare only images of the same size. Definitions
// are from Rhemann et al., "A Perceptually Motivated Online Benchmark for Image
// Matting", CVPR 2009, with the constants of the commonly used code (Xu et al.,
// "Deep Image Matting", 2017). The originals sum over the unknown region of a
// trimap, which background matting does not have.
//
// All throw c10::ValueError for any other shapes or dtypes.

/// Sum of absolute differences, divided by 1000.
torch::Tensor alpha_sad(const torch::Tensor& pha, const torch::Tensor& truth);

/// Mean of squared differences.
torch::Tensor alpha_mse(const torch::Tensor& pha, const torch::Tensor& truth);

/// Sum of squared differences of the gradient magnitudes, divided by 1000.
/// Alphas are first stretched to 0..1. The gradient filters are derivatives of
/// a Gaussian with sigma 1.4 and have norm 1; edges are repeated.
torch::Tensor alpha_gradient_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth);

/// Sum of the differences in connectivity to the largest region that is opaque
/// in both alphas, divided by 1000. Uses levels 0.1 apart and 4 neighbors;
/// distances below 0.15 count as 0. Computed on the CPU, so it synchronizes
/// with the device.
torch::Tensor alpha_connectivity_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth);

/// Returns these four errors as the metrics "sad", "mse", "grad" and "conn",
/// computed from the first output and the first target and averaged over all
/// images.
std::vector<Metric> matting_metrics();

}  // namespace tern
