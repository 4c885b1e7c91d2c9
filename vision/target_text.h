#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/data_block.h"

namespace tern {

/// What targets of this type and shape are.
/// \param targets  [N, ...].
TargetKind target_kind(
    const torch::Tensor& targets,
    const std::vector<std::string>& classes);

/// Name of a class, its number where it has none.
std::string class_name(const std::vector<std::string>& classes, int64_t index);

/// A target, or the model's answer in the form of one, in words.
/// \param target  Of one sample, without N. Not a mask.
std::string target_text(
    TargetKind kind,
    const torch::Tensor& target,
    const std::vector<std::string>& classes);

/// The model's answers in the form of targets: the likeliest class, the classes
/// that are likelier than not, the numbers themselves.
/// \param preds  [N, ...], activated; of classes [N, C, ...].
torch::Tensor decoded(TargetKind kind, const torch::Tensor& preds);

/// An image with the classes of its pixels in colours over it.
/// \param image  [H, W, 1 or 3] kByte. \param mask  [H, W] kLong.
torch::Tensor with_mask(const torch::Tensor& image, const torch::Tensor& mask);

}  // namespace tern
