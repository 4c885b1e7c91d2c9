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

/// Raises an error first of all unless the batch has `size` samples.
/// \param input  An input of the program; its first dimension is checked.
void add_batch_check(
    torch::jit::Graph& graph,
    torch::jit::Value* input,
    int64_t size);

/// The same for another dimension of an input.
/// \param index  Of the input, for the error.
void add_size_check(
    torch::jit::Graph& graph,
    torch::jit::Value* input,
    size_t index,
    int64_t dimension,
    int64_t size);

/// Raises an error first of all where a dimension of an input is larger.
void add_limit_check(
    torch::jit::Graph& graph,
    torch::jit::Value* input,
    size_t index,
    int64_t dimension,
    int64_t size);

/// Raises an error last of all unless an output has as many rows as the batch
/// has samples.
/// \param output  Of the program, or of the tuple that it returns.
void add_rows_check(
    torch::jit::Graph& graph,
    torch::jit::Value* input,
    torch::jit::Value* output);

}  // namespace tern
