#pragma once

#include <cstdint>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Puts a check before each LSTM, GRU and RNN of a program, which then raises
/// an error where the state is for another number of samples than the input:
/// LibTorch's operators do not look, and read and write memory that is not
/// theirs. Operators of TorchScript alone, so that Python runs them too.
/// Private to Tern. \return Whether there is one.
bool add_state_checks(torch::jit::Graph& graph);

/// The same for a program that takes `size` samples alone, before all else.
/// \param input  An input of it; its first dimension is checked.
void add_batch_check(
    torch::jit::Graph& graph,
    torch::jit::Value* input,
    int64_t size);

}  // namespace tern
