#pragma once

#include <memory>

#include "tern/data/batch.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/learner/model.h"

namespace tern::onnx {

/// What `export_onnx` writes.
struct TracedGraph {
  /// Of the first trace, to which `graph` refers.
  std::unique_ptr<OnnxGraph> first;
  std::unique_ptr<OnnxGraph> graph;
  /// Whether images of any size may be given; if not, of multiples of the
  /// example's.
  bool takes_odd_sizes = false;
};

/// Makes the ONNX graph of a model from two traces with inputs of different
/// sizes, and compares what it gives with what the model gives at others. It is
/// of the model's own tensors.
///
/// \param model  In eval mode, without gradients, and a module of C++.
/// 	hrows c10::ValueError as `export_onnx` does.
TracedGraph make_graph(
    Model model,
    const Tensors& example_inputs,
    const OnnxOptions& options);

}  // namespace tern::onnx
