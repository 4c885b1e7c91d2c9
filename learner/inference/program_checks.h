#pragma once

#include <string>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Puts a check before each LSTM, GRU and RNN of a program, which then raises
/// an error where the state is for another number of samples than the input:
/// LibTorch's operators do not look, and read and write memory that is not
/// theirs. Operators of TorchScript alone, so that Python runs them too.
/// Private to Tern. \return Whether there is one.
bool add_state_checks(torch::jit::Graph& graph);

/// Raises an error, at the graph's insertion point, where a comparison of two
/// integers holds: aten::ne where they differ, aten::gt where the first is
/// larger.
/// \param text  Gets both, in this order, in place of {}.
void raise_if(
    torch::jit::Graph& graph,
    torch::jit::Value* first,
    c10::Symbol comparison,
    torch::jit::Value* second,
    const std::string& text);

}  // namespace tern
