#pragma once

#include <filesystem>

#include "tern/data/batch.h"
#include "tern/learner/model.h"

namespace tern {

struct TorchScriptOptions {
  /// Accept any number of samples, which is the first dimension of every input
  /// that has as many rows as the first input. If false, the file accepts only
  /// the example's number and raises an error for any other. Use false for
  /// models that accept only one number of samples, or that store it, for
  /// example in an LSTM's state.
  bool dynamic_batch = true;
  /// Also write `path`.sha256, which `sha256sum -c` and
  /// `load_torchscript_trusted` read.
  bool sha256_file = false;
};

/// Traces a model with an example and writes it as TorchScript, in eval mode.
/// Python's `torch.jit.load(path)` and torch::jit::load read it; the names in
/// its state dict are the same. If writing fails, an existing file is
/// unchanged.
///
///   export_torchscript(model, "net.pt", {torch::rand({1, 3, 224, 224})});
///
/// `Learner::export_torchscript(path, example_inputs, options)` does the same
/// for a Learner's model, in fp32.
///
/// A trace records one path: a decision that `forward` bases on tensor values
/// is fixed in the file. The same would apply to numbers that it computes from
/// the batch size, such as the rows of the initial state that an LSTM, GRU or
/// RNN creates. The model is therefore also traced with different numbers of
/// samples, and in the file, the numbers that differ are computed from the
/// batch size. It is an error if the control flow differs, or if such a number
/// is not a multiple of a size; use -1 in view and reshape, or export for a
/// single number of samples (`dynamic_batch`).
///
/// The same is tried for other dimensions, such as the length of a sequence or
/// the height of an image. If the model does not accept other sizes, or
/// computes differently with them, the file raises an error for any size but
/// the example's. Recurrent layers in the file check that a state that is
/// passed as an input fits the batch. Tracing does not advance the random
/// number generators.
///
/// \param example_inputs  One batch, as passed to `forward`, on the model's
///                        device and of its dtype.
/// \throws c10::ValueError if there is no input, the model is already
///         TorchScript, or the outputs of the trace differ from the model's;
///         naming the operator and its module, if the trace is valid for one
///         batch size only; IoError.
void export_torchscript(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options = {});

/// Reads a TorchScript file for use or training by a Learner.
///
/// The file must be trusted: it is a program, and LibTorch reads its pickles
/// without checking them, so its author can run any code in this process. For
/// weights from other sources use `load_weights`, for Tern's models Predictor;
/// neither runs code from a file.
///
/// \throws DataError if LibTorch cannot read the file, or if its SHA-256
///         differs from `path`.sha256; IoError if it does not exist.
Model load_torchscript_trusted(const std::filesystem::path& path);

}  // namespace tern
