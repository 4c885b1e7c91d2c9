#pragma once

#include "tern/learner/loss.h"

namespace tern {

/// Cross-entropy against targets that are not quite sure: a share `eps` of
/// each is spread over all C classes (Szegedy et al., "Rethinking the Inception
/// Architecture", 2015).
///
///   .loss = tern::label_smoothing_cross_entropy()
///
///   (1 - eps) * -log p[target] + eps * mean over classes of -log p
///
/// fastai's LabelSmoothingCrossEntropy and PyTorch's label_smoothing.
/// \param eps  In [0, 1]; fastai's default.
/// \throws c10::ValueError otherwise.
Loss label_smoothing_cross_entropy(double eps = 0.1);

}  // namespace tern
