#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/learner/model.h"
#include "tern/learner/weights/architecture.h"

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

/// Registers a network of your own for `build_model` and Predictor. Call it
/// before `Predictor::load`. Thread-safe.
/// \throws c10::ValueError if the name is empty or taken, or `builder` empty.
void register_architecture(const std::string& name, ModelBuilder builder);

/// Returns the names that `build_model` knows, sorted.
std::vector<std::string> architectures();

}  // namespace tern
