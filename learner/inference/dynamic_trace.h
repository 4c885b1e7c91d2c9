#pragma once

#include <string>

#include <torch/csrc/jit/api/module.h>

#include "tern/learner/model.h"

namespace tern {

struct DynamicTraceOptions {
  /// For errors: "export_torchscript".
  const char* call;
  /// Any number of samples; otherwise that of the example.
  bool dynamic_batch = true;
  /// What to do about a network that takes one number of samples, as a sentence.
  std::string cure;
};

/// What a network computes, as `trace` gives it, for inputs of other sizes too.
///
/// The network is traced with several numbers of samples. A number that follows
/// it becomes an operator that reads it from a tensor; a network that differs
/// otherwise is refused. The same is tried for each further dimension of the
/// inputs, such as an image's height or a sequence's length. Where it fails, the
/// program checks that the dimension has the example's size, and raises an error
/// for any other, as it does for a state of an LSTM, GRU or RNN that is for
/// another number of samples. The caller has put the model in eval mode and
/// turned gradients off. Private to Tern, for exports.
/// \throws c10::ValueError, naming the operator and its module, if the network
///         takes numbers from the size of the batch that are no multiples of a
///         size, or takes another path; if it is not deterministic; or with the
///         network's reason if it takes no other number of samples.
torch::jit::Module dynamic_trace(
    Model& model,
    const Tensors& inputs,
    const DynamicTraceOptions& options);

}  // namespace tern
