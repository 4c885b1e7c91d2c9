#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

struct GradCamOptions {
  /// Name of the layer, such as "layer3.1" or "4"; it must be a child of a
  /// torch::nn::Sequential. If empty, uses the last layer whose output has at
  /// least 16 cells (such as 4 x 4).
  std::string layer = {};
  /// Class to explain; -1 for the most probable class.
  int64_t target = -1;
};

/// Shows how much each position of a layer's output contributes to a class,
/// that is, where the model looks.
struct GradCam {
  torch::Tensor heat;  // [h, w] kFloat on the CPU, 0..1
  std::string layer;   // name of the layer
  int64_t target = 0;  // class explained
  Prediction prediction;
};

/// Computes a Grad-CAM heat map (Selvaraju et al., "Grad-CAM", equations 1 and
/// 2): the sum of a layer's channels, weighted by the mean gradient of the
/// class's logit, with negative values set to 0, divided by the maximum.
///
/// \param sample  One input as the dataset returns it, without the batch
///                dimension; see Learner::predict.
/// \throws c10::ValueError if the layer or class does not exist, if the layer's
///         output is not [N, C, h, w], or if the targets are boxes or points.
///
/// Does not change weights, gradients or the mode of the model.
GradCam grad_cam(
    Learner& learn,
    const torch::Tensor& sample,
    const GradCamOptions& options = {});

/// Computes Grad-CAM for an image file, prepared as in evaluation. Writes the
/// image and the heat map side by side to `picture`, a PNG file.
GradCam plot_grad_cam(
    Learner& learn,
    const std::filesystem::path& image,
    const std::filesystem::path& picture,
    const GradCamOptions& options = {});

}  // namespace tern
