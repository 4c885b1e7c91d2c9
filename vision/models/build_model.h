#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "tern/learner/export/architecture.h"
#include "tern/learner/export/model_card.h"
#include "tern/learner/model.h"

namespace tern {

/// Builds a network from its description, with initial weights.
using ModelBuilder = std::function<Model(const Architecture&)>;

/// Builds the network that `architecture` describes: one of Tern's, or one that
/// the program has registered.
///
///   Model model = build_model({"resnet18", R"({"num_classes": 10})"});
///
/// \throws c10::ValueError for an unknown name or invalid options; DataError
///         for options of another network.
Model build_model(const Architecture& architecture);

/// Whether `build_model` knows the name.
bool is_architecture(const std::string& name);

/// Builds the network of a file that `Learner::export_model` wrote, with its
/// weights, in eval mode.
/// \param trusted  Allows a TorchScript graph, which is a program.
/// \throws as `build_model`; c10::ValueError for a graph that is not trusted;
///         DataError if the file is not an exported model;
///         IoError.
std::pair<Model, ModelCard> load_exported(
    const std::filesystem::path& file,
    bool trusted = false);

/// Registers a network of your own for `build_model` and Predictor. Call it
/// before `Predictor::load`. Thread-safe.
/// \throws c10::ValueError if the name is empty or taken, or `builder` empty.
void register_architecture(const std::string& name, ModelBuilder builder);

}  // namespace tern
