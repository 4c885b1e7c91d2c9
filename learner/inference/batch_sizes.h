#pragma once

#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

#include "tern/learner/model.h"

namespace tern {

/// Where the graph of a network depends on how many samples it was traced with:
/// a number that `forward` takes from the size of the batch is a constant of
/// the trace.
struct BatchDifference {
  std::string place;   // "aten::lstm in its module encoder.lstm"
  std::string first;   // "takes a tensor of [1, 2, 8]"
  std::string second;  // "a tensor of [1, 5, 8]"
};

/// Compares two graphs of one network, traced with different numbers of
/// samples: their operators and all constants. Private to Tern.
/// \param first, second  As `constant_graph` gives them.
/// \return The first difference; none if either graph stands for both sizes.
std::optional<BatchDifference> batch_difference(
    const torch::jit::Graph& first,
    const torch::jit::Graph& second);

/// For each input, whether its first dimension is the batch: those that have as
/// many rows as the first input. None, if that has no rows.
std::vector<bool> have_samples(const Tensors& inputs);

/// The samples of a batch over and over, until there are `size`. Inputs that
/// have no samples stay as they are.
Tensors with_batch_size(const Tensors& inputs, int64_t size);

/// Refuses a trace that keeps the number of its samples: traces the network
/// again with another number, more than twice as many and of the other parity,
/// compares the graphs, and the trace's outputs with the network's.
/// \param inputs  Of `traced`.
/// \param call    For the error: "export_torchscript".
/// \param cure    What to do, as a sentence.
/// \throws c10::ValueError naming the operator and its module, or with the
///         network's reason if it takes no other number.
void check_other_batch_size(
    Model& model,
    const torch::jit::Module& traced,
    const Tensors& inputs,
    const char* call,
    const std::string& cure);

}  // namespace tern
