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

/// What an exported model says of itself, beside its weights.
struct ModelCard {
  Architecture architecture = {};
  /// In the order of the model's outputs; empty when these are no classes.
  std::vector<std::string> classes = {};
  /// What turns outputs into what a person reads.
  Activation activation = Activation::none;
  /// What each output predicts, with names and activation: of the first the
  /// two above.
  std::vector<OutputInfo> outputs = {};
  /// Unset: the model takes tensors alone, no images.
  std::optional<ImagePreprocessing> preprocessing = {};
  /// Losses and metrics of the last epoch of training.
  std::vector<MetricValue> metrics = {};
  /// The program's own texts, as `ExportOptions::metadata` had them.
  std::map<std::string, std::string> metadata = {};
};

/// "multi_category", as the card calls it.
const char* kind_name(TargetKind kind);

/// The card as the texts that a safetensors file has room for, all but the
/// architecture's name and the program's own texts JSON, under keys that begin
/// with "tern."; the program's own ones with "tern.user.".
/// \throws c10::ValueError for a class whose name is not UTF-8, and for texts of
///         the program that have no name, are not UTF-8, or are too long.
std::map<std::string, std::string> to_metadata(const ModelCard& card);

/// \param path  Of the file, for error messages.
/// \throws DataError if there is no card, it is damaged, or of a later version.
ModelCard parse_model_card(
    const std::map<std::string, std::string>& metadata,
    const std::string& path);

}  // namespace tern
