#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tern/data/image_preprocessing.h"

namespace tern {

/// Options of `Learner::export_model`, which writes a file for Predictor.
///
///   learn.export_model("pets.tern.safetensors", {.half = true});
struct ExportOptions {
  /// Store floating-point weights in fp16, which halves the file. Normalization
  /// layers, and weights outside fp16's range, stay fp32.
  bool half = false;
  /// Also write a Python program, `path` with the extension .py, that computes
  /// the same predictions with torch and torchvision. Supports torchvision's
  /// networks, alone or with vision_learner's head, simple_cnn, and every model
  /// with `traced`. For other networks, and for boxes and points, export_model
  /// throws a c10::ValueError and writes nothing.
  bool python_loader = false;
  /// Write the model's TorchScript graph instead of its architecture's name. A
  /// model that is not a HasArchitecture is always traced, with two samples of
  /// the data. The graph then accepts any number of samples, and inputs of
  /// other sizes if the model does, see `export_torchscript`. For a model whose
  /// control flow depends on the number of samples, export_model throws a
  /// c10::ValueError that names the operator; give such a model an
  /// architecture, see `register_architecture`.
  bool traced = false;
  /// Also write `path`.sha256, for `sha256sum -c`; see `load_weights`.
  bool sha256_file = false;
  /// Preprocessing of images for the model. Unset: the DataBunch's.
  std::optional<ImagePreprocessing> preprocessing = {};
  /// Custom strings by name, such as a vocabulary or the statistics of a table.
  /// They are stored in the file, and a Predictor returns them as
  /// `card().metadata`. UTF-8, at most 8 MiB in total.
  std::map<std::string, std::string> metadata = {};
};

}  // namespace tern
