#pragma once

#include <filesystem>

#include "tern/data/batch.h"
#include "tern/learner/model.h"

namespace tern {

struct TorchScriptOptions {
  /// Any number of samples, the first dimension of every input that has as many
  /// as the first. If false, those of the example alone: for a model that takes
  /// no other number, or keeps one, such as an LSTM's state. The file then
  /// raises an error for any other.
  bool dynamic_batch = true;
  /// Writes `path`.sha256 beside it, which `sha256sum -c` and
  /// `load_torchscript_trusted` read.
  bool sha256_file = false;
};

/// Writes what the model computes, traced with an example, as TorchScript:
/// Python's `torch.jit.load(path)` and torch::jit::load give it back, with the
/// same names in its state dict, in eval mode. The name gets the whole file or
/// keeps the old one.
///
///   export_torchscript(model, "net.pt", {torch::rand({1, 3, 224, 224})});
///
/// `Learner::export_torchscript(path, example_inputs, options)` does it for a Learner's
/// model, in fp32.
///
/// A trace has one path: what `forward` decides by looking at values is decided
/// for good. A number that it takes from the size of the batch, such as the rows
/// of the state that an LSTM, GRU or RNN makes itself, would be a constant too.
/// The model is traced with other numbers of samples as well, and what differs is
/// computed from the size in the file. A model whose path differs, or a number
/// that is no multiple of a size, is refused: use -1 in view and reshape, or
/// export for one number of samples alone (`dynamic_batch`).
///
/// The same is tried for other dimensions, such as a sequence's length or an
/// image's height. Where the model takes no other size, or computes otherwise
/// with it, the file raises an error for any size but the example's. Recurrent
/// layers check in the file that a state which is an input fits the batch. Draws
/// no random numbers.
///
/// \param example_inputs  One batch, as `forward` gets it, on the model's
///                        device and of its type.
/// \throws c10::ValueError if there is no input, the model is TorchScript
///         already, the trace gives other outputs than the model, or, naming
///         the operator and its module, it holds for one size of batch; IoError.
void export_torchscript(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options = {});

/// Reads TorchScript, to be used or trained by a Learner.
///
/// Trusted: a TorchScript file is a program, and its pickles are read by
/// LibTorch, which does not check them. Whoever wrote the file can make this
/// one do what they want. For weights from elsewhere use `load_weights`, for
/// models of Tern's Predictor; neither runs anything of a file.
///
/// \throws DataError if LibTorch cannot read it, or it has not the SHA-256 that
///         `path`.sha256 lists; IoError if it is not there.
Model load_torchscript_trusted(const std::filesystem::path& path);

}  // namespace tern
