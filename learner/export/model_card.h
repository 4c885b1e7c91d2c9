#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/image_preprocessing.h"
#include "tern/learner/export/architecture.h"
#include "tern/learner/loss.h"
#include "tern/learner/train_state.h"

namespace tern {

/// Description of an exported model, stored with its weights.
struct ModelCard {
  Architecture architecture = {};
  /// In the order of the model's outputs; empty if the outputs are not classes.
  std::vector<std::string> classes = {};
  /// Applied to outputs before they are shown.
  Activation activation = Activation::none;
  /// What each output predicts, with names and activation. `classes` and
  /// `activation` repeat those of the first output.
  std::vector<OutputInfo> outputs = {};
  /// Unset: the model accepts only tensors, not images.
  std::optional<ImagePreprocessing> preprocessing = {};
  /// Losses and metrics of the last training epoch.
  std::vector<MetricValue> metrics = {};
  /// Custom strings from `ExportOptions::metadata`.
  std::map<std::string, std::string> metadata = {};
};

/// Returns the card's name for a kind of target, for example "multi_category".
const char* kind_name(TargetKind kind);

/// Returns the card as the metadata of a safetensors file. Keys begin with
/// "tern.", keys of custom strings with "tern.user."; "format" is "pt", as in
/// Python. Options, classes, outputs, metrics and preprocessing are JSON, all
/// other values plain text.
/// \throws c10::ValueError if a class name is not UTF-8, or if a custom string
///         has no name, is not UTF-8, or is too long.
std::map<std::string, std::string> to_metadata(const ModelCard& card);

/// Reads a card from a file's metadata.
/// \param path  Of the file, for error messages.
/// \throws DataError if there is no card, or it is damaged or has a later
///         version.
ModelCard parse_model_card(
    const std::map<std::string, std::string>& metadata,
    const std::string& path);

}  // namespace tern
