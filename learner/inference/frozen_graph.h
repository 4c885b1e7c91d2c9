#pragma once

#include <memory>
#include <string>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Checks that a trace records the values of all tensors that it creates.
/// \param call  Name of the caller, for error messages: "export_onnx".
/// \throws c10::ValueError if `forward` creates a tensor from numbers, which a
///         trace does not record.
void check_made_tensors(
    const std::shared_ptr<torch::jit::Graph>& trace,
    const char* call);

/// Returns the graph of a trace, for translation or execution. Weights become
/// named constants, and everything that depends only on constants is folded.
/// Private to Tern, for exports and Predictor.
/// \param forward  The graph of the trace's `forward`, or a modified copy of
///                 it. It is copied.
/// \throws the errors of `check_made_tensors`.
std::shared_ptr<torch::jit::Graph> constant_graph(
    const torch::jit::Module& trace,
    torch::jit::Graph& forward,
    const char* call);

/// Folds each BatchNorm into the convolution before it, unless it normalizes
/// with the batch's statistics. The folded weights keep the convolution's
/// names.
void fold_batch_norms(std::shared_ptr<torch::jit::Graph>& graph);

/// Applies `constant_graph`, then `fold_batch_norms`, for ONNX.
std::shared_ptr<torch::jit::Graph> frozen_graph(
    const torch::jit::Module& trace);

/// Returns the name of a weight, or of the first weight in a list, in a trace
/// or in a `constant_graph`: "layer1.0.conv.weight". Empty for other values.
std::string weight_name(const torch::jit::Value& value);

/// Returns the location of an operator in a trace or in a `constant_graph`,
/// derived from the names of weights: "its module layer1.0", or "the model
/// itself".
std::string place_of(const torch::jit::Node& node);

}  // namespace tern
