#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/vision/data_block.h"

namespace tern {

/// A batch's images as people see them, and its targets.
struct VisibleBatch {
  torch::Tensor images;   // [N, H, W, 1 or 3] kByte, CPU
  torch::Tensor targets;  // [N, ...], CPU; undefined where there are none
};

/// Does the batch transforms of `data` for as long as the images are bytes:
/// what is left out is their normalisation. Floating images are shown as they
/// are where they lie in 0..1, else between their smallest and largest value.
///
/// \throws c10::ValueError if the inputs are no images.
VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments);

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

}  // namespace tern
