#pragma once

#include <string>

#include <torch/csrc/jit/api/module.h>

#include "tern/learner/model.h"

namespace tern {

struct DynamicTraceOptions {
  /// Name of the caller, for error messages: "export_torchscript".
  const char* call;
  /// Accept any number of samples. False: only the example's number.
  bool dynamic_batch = true;
  /// Advice, as a sentence, for a network that accepts only one number of
  /// samples.
  std::string cure;
};

/// Traces a network as `trace` does, and returns a program that also accepts
/// inputs of other sizes.
///
/// The network is traced with several numbers of samples. A number that changes
/// with them is replaced by an operator that reads it from a tensor; any other
/// difference is an error. The same is tried for each other dimension of the
/// inputs, such as the height of an image or the length of a sequence. If that
/// fails, the program raises an error for any size but the example's; likewise
/// if the network accepts no larger sizes, or only multiples of a power of two.
/// If dimensions of two inputs are equal and can only change together, the
/// program raises an error for inputs in which they differ. A network that
/// behaves differently at sizes far beyond the example's is not detected.
///
/// The caller must set the model to eval mode and disable gradients. Private to
/// Tern, for exports.
/// \throws c10::ValueError, naming the operator and its module, if the network
///         computes a number from the batch size that is not a multiple of a
///         size, or takes a different path; if it is not deterministic; if the
///         example is empty; with the network's own error, if it accepts no
///         other number of samples. c10::OutOfMemoryError.
torch::jit::Module dynamic_trace(
    Model& model,
    const Tensors& inputs,
    const DynamicTraceOptions& options);

}  // namespace tern
