#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

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
  /// is `traced`; of others, and for boxes and points, it is a c10::ValueError,
  /// and nothing is written.
  bool python_loader = false;
  /// Writes the model's TorchScript graph instead of its architecture's name.
  /// A model that is no HasArchitecture is always traced, with two samples of
  /// the data; the graph then takes any number of them, and inputs of other sizes
  /// where the model does, as `export_torchscript` says. A model that takes
  /// another path for other numbers of samples is a c10::ValueError that names the
  /// operator: give it an architecture, see `register_architecture`.
  bool traced = false;
  /// Writes `path`.sha256 beside it, for `sha256sum -c`; see `load_weights`.
  bool sha256_file = false;
  /// What happens to an image before the model; unset: as the DataBunch says.
  std::optional<ImagePreprocessing> preprocessing = {};
  /// Texts of your own by name, such as a vocabulary or the statistics of a
  /// table: the file keeps them, and a Predictor gives them back as
  /// `card().metadata`. UTF-8, of at most 8 MiB in all.
  std::map<std::string, std::string> metadata = {};
};

}  // namespace tern
