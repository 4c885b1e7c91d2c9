#pragma once

#include <unordered_set>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Returns the values of a graph that may contain NaN or infinity although all
/// inputs of the graph are finite: results of operators such as division,
/// logarithm and square root, and values that are computed from these. Numbers
/// that become infinite because they are too large for their dtype are not
/// taken into account. Private to Tern, for `fuse_layers`.
std::unordered_set<const torch::jit::Value*> values_with_nan(
    const torch::jit::Graph& graph);

}  // namespace tern
