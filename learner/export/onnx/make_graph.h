#pragma once

#include <memory>

#include "tern/data/batch.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/learner/model.h"

namespace tern::onnx {

struct TracedGraph {
  /// The graph of the first trace, to which `graph` refers.
  std::unique_ptr<OnnxGraph> first;
  std::unique_ptr<OnnxGraph> graph;  // written by `export_onnx`
  /// True if images of any size are accepted; otherwise only multiples of the
  /// example's size.
  bool takes_odd_sizes = false;
};

/// Creates the ONNX graph of a model from two traces with inputs of different
/// sizes, and compares its outputs with the model's at other sizes. The graph
/// shares the model's tensors.
///
/// \param model  A C++ module in eval mode, without gradients.
/// \throws the errors of `export_onnx`.
TracedGraph make_graph(
    Model model,
    const Tensors& example_inputs,
    const OnnxOptions& options);

}  // namespace tern::onnx
