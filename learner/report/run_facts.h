#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

class Learner;

/// Names with values, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Data, model, optimizer, learning rates and precision of a Learner.
Facts configuration(Learner& learner);

/// Versions, processor, device and system that this program runs with, without
/// the names of the user and the machine.
Facts environment(torch::Device device);

/// "tern::optim::AdamW", or that it is created when the first fit begins.
std::string optimizer_text(Learner& learner);

/// The loop of `fit` as lines of text: each event with the callbacks that act
/// there, in the order in which they run.
std::vector<std::string> training_loop(const Callbacks& callbacks);

}  // namespace tern
