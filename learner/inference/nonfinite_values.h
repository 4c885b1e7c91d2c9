#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Returns the values of a graph that may contain NaN or infinity although its
/// inputs are finite: results of operators such as division, logarithm and
/// square root, and values that are computed from these. Numbers that become
/// infinite because they are too large for their dtype are not taken into
/// account.
/// Private to Tern, for `fuse_layers`.
/// \param inputs  The inputs of the graph that may themselves not be finite.
std::unordered_set<const torch::jit::Value*> possibly_nonfinite_values(
    const torch::jit::Graph& graph,
    const std::vector<size_t>& inputs = {});

}  // namespace tern
