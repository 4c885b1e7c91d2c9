#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

struct GradCamOptions {
  /// A layer by its name, as "layer3.1" or "4": a child of a
  /// torch::nn::Sequential. Empty: the last one with at least 4 x 4 cells.
  std::string layer = {};
  /// The class to explain; -1: the likeliest.
  int64_t target = -1;
};

/// Where a model looks: how much each place of a layer's answer, [N, C, h, w],
/// speaks for a class.
struct GradCam {
  torch::Tensor heat;  // [h, w] kFloat on the CPU, 0..1
  std::string layer;   // it was taken from
  int64_t target = 0;  // the class it speaks for
  Prediction prediction;
};

/// Selvaraju et al., "Grad-CAM", equations 1 and 2: the channels of a layer,
/// each weighted by the mean gradient of the class's logit, added up; what
/// speaks against the class is 0. Divided by the largest value.
///
/// \param sample  One input without the batch dimension, as the data set makes
///                it; see Learner::predict.
/// \throws c10::ValueError if there is no such layer or class, or the layer's
///         answer has no height and width.
///
/// Weights, gradients and the mode of the model stay as they are.
GradCam grad_cam(
    Learner& learn,
    const torch::Tensor& sample,
    const GradCamOptions& options = {});

/// The same for an image file, prepared as for validation, drawn beside the
/// image. \param picture  A PNG.
GradCam plot_grad_cam(
    Learner& learn,
    const std::filesystem::path& image,
    const std::filesystem::path& picture,
    const GradCamOptions& options = {});

}  // namespace tern
