#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/learner/model.h"
#include "tern/learner/weights/architecture.h"

namespace tern {

/// Builds a network from its description, with weights of its own choosing.
using ModelBuilder = std::function<Model(const Architecture&)>;

/// The network that `architecture` describes: one of Tern's, or of those that
/// the program has registered.
///
///   Model model = build_model({"resnet18", R"({"num_classes": 10})"});
///
/// \throws c10::ValueError for a name that nobody has registered, or options
///         that the network refuses; DataError for options that are not its.
Model build_model(const Architecture& architecture);

/// Makes a network of one's own known to `build_model`, and so to Predictor.
/// Before `Predictor::load`; safe from any thread.
/// \throws c10::ValueError if the name is empty or taken, or `builder` empty.
void register_architecture(const std::string& name, ModelBuilder builder);

/// The names that `build_model` knows, sorted.
std::vector<std::string> architectures();

}  // namespace tern
