#pragma once

#include <memory>
#include <string>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// The graph of what `trace` gives, to compare or to translate: weights are
/// constants with their names, and what depends on constants alone is computed.
/// Private to Tern, for exports and Predictor.
/// \param call  Who traces, for the error: "export_onnx".
/// \throws c10::ValueError if it makes tensors of numbers that a trace lacks.
std::shared_ptr<torch::jit::Graph> constant_graph(
    const torch::jit::Module& trace,
    const char* call);

/// Folds each BatchNorm into the convolution before it; the folded weights keep
/// the convolution's names.
void fold_batch_norms(std::shared_ptr<torch::jit::Graph>& graph);

/// Both, for ONNX.
std::shared_ptr<torch::jit::Graph> frozen_graph(
    const torch::jit::Module& trace);

/// Where an operator of such a graph is: "its module layer1.0", by the names of
/// weights, or "the model itself".
std::string place_of(const torch::jit::Node& node);

}  // namespace tern
