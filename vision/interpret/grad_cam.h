#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

struct GradCamOptions {
  /// Name of the layer, such as "layer3.1" or "4": a child of a
  /// torch::nn::Sequential. Empty: the last one whose output has at least 4 x 4
  /// cells.
  std::string layer = {};
  /// Class to explain; -1: the most probable one.
  int64_t target = -1;
};

/// Where a model looks: how much each position of a layer's output contributes
/// to a class.
struct GradCam {
  torch::Tensor heat;  // [h, w] kFloat on the CPU, 0..1
  std::string layer;   // whose output was used
  int64_t target = 0;  // the class explained
  Prediction prediction;
};

/// Selvaraju et al., "Grad-CAM", equations 1 and 2: the channels of a layer,
/// weighted by the mean gradient of the class's logit, summed, negative values
/// set to 0, divided by the maximum.
///
/// \param sample  One input without the batch dimension, as the dataset
///                returns it; see Learner::predict.
/// \throws c10::ValueError if there is no such layer or class, the layer's
///         output is not [N, C, h, w], or the targets are boxes or points.
///
/// Does not change weights, gradients or the mode of the model.
GradCam grad_cam(
    Learner& learn,
    const torch::Tensor& sample,
    const GradCamOptions& options = {});

/// The same for an image file, prepared as in evaluation; writes the image and
/// the heat map side by side. \param picture  A PNG.
GradCam plot_grad_cam(
    Learner& learn,
    const std::filesystem::path& image,
    const std::filesystem::path& picture,
    const GradCamOptions& options = {});

}  // namespace tern
