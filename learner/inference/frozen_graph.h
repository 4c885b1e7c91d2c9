#pragma once

#include <memory>
#include <string>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// \param call  Who traces, for the error: "export_onnx".
/// \throws c10::ValueError if a trace makes tensors of numbers that it lacks.
void check_made_tensors(
    const std::shared_ptr<torch::jit::Graph>& trace,
    const char* call);

/// The graph of what `trace` gives, to translate or to run: weights are
/// constants with their names, and what depends on constants alone is computed.
/// Private to Tern, for exports and Predictor.
/// \param forward  The graph of its `forward`, or a changed copy of that; it is
///                 copied.
/// \throws as `check_made_tensors`.
std::shared_ptr<torch::jit::Graph> constant_graph(
    const torch::jit::Module& trace,
    torch::jit::Graph& forward,
    const char* call);

/// Folds each BatchNorm into the convolution before it, unless it normalizes by
/// the batch's statistics; the folded weights keep the convolution's names.
void fold_batch_norms(std::shared_ptr<torch::jit::Graph>& graph);

/// Both, for ONNX.
std::shared_ptr<torch::jit::Graph> frozen_graph(
    const torch::jit::Module& trace);

/// The name of a weight, or of the first in a list of them, in a trace or in such
/// a graph: "layer1.0.conv.weight". Empty for anything else.
std::string weight_name(const torch::jit::Value& value);

/// Where an operator of a trace or of such a graph is: "its module layer1.0", by
/// the names of weights, or "the model itself".
std::string place_of(const torch::jit::Node& node);

}  // namespace tern
