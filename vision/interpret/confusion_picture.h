#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/drawing.h"

namespace tern {

/// Draws a confusion matrix. A cell is the darker the larger its share of the
/// actual class is, and as wide as the longest number; beyond 60 classes there
/// are no numbers.
/// \param counts     [C, C] kLong: rows are actual, columns predicted.
/// \param names      Of the C classes.
/// \param normalize  Writes shares instead of counts.
Page draw_confusion_matrix(
    const torch::Tensor& counts,
    const std::vector<std::string>& names,
    bool normalize);

}  // namespace tern
