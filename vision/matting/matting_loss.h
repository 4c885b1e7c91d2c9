#pragma once

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

// The losses of BackgroundMattingV2 (Lin et al., "Real-Time High-Resolution
// Background Matting", CVPR 2021; its train_base.py and train_refine.py), for
// `LearnerOptions::loss`. Targets are pha [N, 1, H, W] and fgr [N, 3, H, W],
// floating in 0..1; the foreground counts where alpha is not 0. Both throw
// c10::ValueError if outputs or targets are missing or of other shapes.

/// L1 of alpha, of its Sobel gradient and of the foreground, and the squared
/// error of the expected error.
///
///   .loss = tern::matting_base_loss
///
/// \param outputs  As MattingBase: pha [N, 1, H, W], fgr [N, 3, H, W], err
///                 [N, 1, H, W]; what follows is not looked at.
torch::Tensor matting_base_loss(const Tensors& outputs, const Tensors& targets);

/// The same at both sizes of the refining network; the expected error is that
/// of the coarse alpha, enlarged.
///
/// \param outputs  As MattingRefine: pha, fgr of full size, then pha_sm
///                 [N, 1, h, w], fgr_sm [N, 3, h, w], err_sm [N, 1, h, w];
///                 what follows is not looked at.
torch::Tensor matting_refine_loss(
    const Tensors& outputs,
    const Tensors& targets);

/// How steep each channel is at each pixel, as kornia.filters.sobel: the
/// magnitude sqrt(gx^2 + gy^2 + 1e-6) of 3 x 3 kernels that are divided by 8,
/// edges repeated.
/// \param x  [N, C, H, W] floating. \return The same shape and type.
torch::Tensor sobel(const torch::Tensor& x);

}  // namespace tern
