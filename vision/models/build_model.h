#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "tern/learner/export/architecture.h"
#include "tern/learner/export/model_card.h"
#include "tern/learner/model.h"

namespace tern {

/// Builds a network with initial weights from its description.
using ModelBuilder = std::function<Model(const Architecture&)>;

/// Builds the network that `architecture` describes: one of Tern's networks, or
/// a network registered with `register_architecture`.
///
///   Model model = build_model({"resnet18", R"({"num_classes": 10})"});
///
/// \throws c10::ValueError for an unknown name or invalid options; DataError if
///         the options belong to a different network.
Model build_model(const Architecture& architecture);

/// True if `build_model` can build a network of this name.
bool is_architecture(const std::string& name);

/// Builds the network of a file written by `Learner::export_model` and loads
/// its weights. The model is in eval mode.
/// \param trusted  Allows a TorchScript graph, which is executable code.
/// \throws the errors of `build_model`; c10::ValueError for a graph if not
///         `trusted`; DataError if the file is not an exported model; IoError.
std::pair<Model, ModelCard> load_exported(
    const std::filesystem::path& file,
    bool trusted = false);

/// Registers a custom network for `build_model` and Predictor. Call it before
/// `Predictor::load`. Thread-safe.
/// \throws c10::ValueError if the name is empty or already registered, or if
///         `builder` is empty.
void register_architecture(const std::string& name, ModelBuilder builder);

}  // namespace tern
