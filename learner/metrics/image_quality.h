#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics of images. Outputs and targets are [N, C, H, W]. The value is the
// mean over all images.

/// Peak signal-to-noise ratio in decibels, `10 log10(data_range^2 / mse)`.
/// Infinite for an image without errors.
/// \param data_range  Largest possible minus smallest possible value; > 0.
Metric psnr(double data_range = 1);

/// Structural similarity (Wang et al., 2004) with a Gaussian window of 11
/// pixels and a standard deviation of 1.5, K1 0.01 and K2 0.03. The mean over
/// channels and over all positions at which the window is inside the image.
/// Equals scikit-image's structural_similarity with gaussian_weights and
/// without use_sample_covariance. Images must be at least 11 x 11.
/// \param data_range  As for psnr.
Metric ssim(double data_range = 1);

}  // namespace tern
