#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics of images: outputs and targets [N, C, H, W]. Each is the mean over
// all images.

/// Peak signal-to-noise ratio in decibels, `10 log10(data_range^2 / mse)`;
/// infinite for an image without an error.
/// \param data_range  The largest value minus the smallest that can be; > 0.
Metric psnr(double data_range = 1);

/// Structural similarity (Wang et al., 2004): a Gaussian window of 11 pixels
/// with a standard deviation of 1.5, K1 0.01 and K2 0.03, the mean over
/// channels and over all places where the window is inside the image; that of
/// scikit-image with gaussian_weights and without use_sample_covariance.
/// \param data_range  As for psnr. Images are at least 11 x 11.
Metric ssim(double data_range = 1);

}  // namespace tern
