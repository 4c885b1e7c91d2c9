#pragma once

#include <string>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Adds a check before each LSTM, GRU and RNN of a program, which raises an
/// error if the number of samples differs between the state and the input.
/// LibTorch's operators do not check this, and read and write out of bounds.
/// Uses TorchScript operators only, so that Python can run the program too.
/// Private to Tern.
/// \return true if the program has such a layer.
bool add_state_checks(torch::jit::Graph& graph);

/// Inserts code at the graph's insertion point that raises an error if a
/// comparison of two integers holds: aten::ne if they differ, aten::gt if the
/// first is larger.
/// \param text  The error message; each {} is replaced by one of the integers,
///              in this order.
void raise_if(
    torch::jit::Graph& graph,
    torch::jit::Value* first,
    c10::Symbol comparison,
    torch::jit::Value* second,
    const std::string& text);

}  // namespace tern
