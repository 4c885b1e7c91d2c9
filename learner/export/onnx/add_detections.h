#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/output_info.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// A detector's boxes and logits in a graph.
struct RawDetections {
  Value* boxes;   // [N, A, 4] kFloat, within the images
  Value* logits;  // [N, A, C] kFloat
  int64_t images, classes;
  Integers counts;  // of anchors, level by level
  /// Whether the counts depend on the inputs; TopK's number then does too.
  bool has_any_size = false;
};

/// Adds what `decode_detections` does after the boxes are decoded, by ONNX's
/// NonMaxSuppression, as three more outputs of the graph: boxes [N, D, 4],
/// scores [N, D] and labels [N, D].
///
/// \param names  Of these outputs.
void add_detections(
    OnnxGraph& graph,
    const RawDetections& raw,
    const DetectionOptions& options,
    const std::vector<std::string>& names);

}  // namespace tern::onnx
