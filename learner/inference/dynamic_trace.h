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
/// program raises an error for any size but the example's, and likewise where
/// the network took no larger sizes, or only multiples of a power of two. Where
/// dimensions of two inputs were the same, and could only be changed together,
/// it raises an error for inputs in which they differ. What the network does
/// with sizes far beyond the example's, if it does otherwise, is not seen.
///
/// The caller has put the model in eval mode and turned gradients off. Private to
/// Tern, for exports.
/// \throws c10::ValueError, naming the operator and its module, if the network
///         takes numbers from the size of the batch that are no multiples of a
///         size, or takes another path; if it is not deterministic; if the
///         example is empty; or with the network's reason if it takes no other
///         number of samples. c10::OutOfMemoryError.
torch::jit::Module dynamic_trace(
    Model& model,
    const Tensors& inputs,
    const DynamicTraceOptions& options);

}  // namespace tern
