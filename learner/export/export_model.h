#pragma once

#include <filesystem>
#include <optional>

#include "tern/data/image_preprocessing.h"

namespace tern {

/// How `Learner::export_model` writes the file that a Predictor reads.
///
///   learn.export_model("pets.tern.safetensors", {.half = true});
struct ExportOptions {
  /// Floating weights as fp16, for half the bytes; norms and what fp16 cannot
  /// hold stay fp32.
  bool half = false;
  /// Writes a Python program beside the file, `path` with the ending .py, that
  /// gives the same answers with torch and torchvision. For torchvision's
  /// networks, alone or under vision_learner's head, simple_cnn, and whatever
  /// is `traced`; of others it is a c10::ValueError, and nothing is written.
  bool python_loader = false;
  /// Writes the model's TorchScript graph instead of its architecture's name.
  /// A model that is no HasArchitecture is always traced, with two samples of
  /// the data; the graph then takes inputs of that size, in any number. A model
  /// whose graph keeps a number of its batch, such as the rows of an LSTM's
  /// state, is a c10::ValueError that names the operator: give it an
  /// architecture, see `register_architecture`, or the state as an input.
  bool traced = false;
  /// Writes `path`.sha256 beside it, for `sha256sum -c`; see `load_weights`.
  bool sha256_file = false;
  /// What happens to an image before the model; unset: as the DataBunch says.
  std::optional<ImagePreprocessing> preprocessing = {};
};

}  // namespace tern
