#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// The graph of what `trace` gives, to translate: weights are constants with
/// their names, what depends on constants alone is computed, and each BatchNorm
/// folded into the convolution before it. Private to Tern, for exports.
/// \throws c10::ValueError if it makes tensors of numbers that a trace lacks.
std::shared_ptr<torch::jit::Graph> frozen_graph(
    const torch::jit::Module& trace);

/// For each value of the first the one in its place in the second; empty if
/// their operators differ.
std::unordered_map<const torch::jit::Value*, const torch::jit::Value*> twins_of(
    torch::jit::Graph& first,
    torch::jit::Graph& second);

/// The name of the module that an operator of a frozen graph is in, "" for the
/// model itself: that of its weights, or the one with those before and after.
std::string module_of(const torch::jit::Node& node);

/// Whether an operator that works in place writes into memory of a tensor other
/// than its result that is read later.
bool overwrites_others(torch::jit::Node& node);

}  // namespace tern
