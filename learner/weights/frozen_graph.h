#pragma once

#include <memory>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// The graph of what `trace` gives, to translate: weights are constants with
/// their names, what depends on constants alone is computed, and each BatchNorm
/// folded into the convolution before it. Private to Tern, for exports.
/// \throws c10::ValueError if it makes tensors of numbers that a trace lacks.
std::shared_ptr<torch::jit::Graph> frozen_graph(
    const torch::jit::Module& trace);

}  // namespace tern
