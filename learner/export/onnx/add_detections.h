#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/output_info.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Boxes and logits of a detector in a graph.
struct RawDetections {
  Value* boxes;   // [N, A, 4] kFloat, within the images
  Value* logits;  // [N, A, C] kFloat
  int64_t images, classes;
  Integers counts;  // number of anchors per level
  /// True if the counts depend on the inputs; then TopK's k does too.
  bool has_any_size = false;
};

/// Adds the part of `decode_detections` that follows the decoding of boxes,
/// with ONNX's NonMaxSuppression. Adds three outputs to the graph: boxes [N, D,
/// 4], scores [N, D] and labels [N, D].
///
/// \param names  Names of these outputs.
void add_detections(
    OnnxGraph& graph,
    const RawDetections& raw,
    const DetectionOptions& options,
    const std::vector<std::string>& names);

}  // namespace tern::onnx
