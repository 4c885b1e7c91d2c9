#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/output_info.h"

// The parts of `decode_detections`, for exports. Private to Tern.
namespace tern {

/// \throws c10::ValueError if a threshold or a count is out of range.
/// \param where  The called function, for the error message.
void check_detection_options(
    const char* where,
    const DetectionOptions& options);

/// \throws c10::ValueError unless the outputs have the form of a RetinaNet's
///         outputs.
void check_detector_outputs(const char* where, const Tensors& outputs);

/// Returns the number of anchors of each level: from the options, or derived
/// from the anchors of the first image.
/// \param anchors  [N, A, 4].
/// \throws c10::ValueError if they do not match.
std::vector<int64_t> anchors_per_level(
    const char* where,
    const torch::Tensor& anchors,
    const DetectionOptions& options);

/// Returns all boxes of a RetinaNet, clipped to the images: [N, A, 4] kFloat.
torch::Tensor decoded_boxes(const Tensors& outputs);

/// Returns the boxes of some anchors, [N, K, 4] kFloat. The indices in
/// `anchor`, [N, K], count from `begin`.
using BoxesOf =
    std::function<torch::Tensor(const torch::Tensor& anchor, int64_t begin)>;

/// Returns the result of `decode_detections`.
/// \param logits  [N, A, C], class logits.
/// \param counts  Anchors per level.
/// \param keeps_order  Among equal logits, select the first; slower.
Tensors select_detections(
    const torch::Tensor& logits,
    const BoxesOf& boxes_of,
    const std::vector<int64_t>& counts,
    const DetectionOptions& options,
    bool keeps_order = false);

}  // namespace tern
