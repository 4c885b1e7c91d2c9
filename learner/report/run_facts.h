#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

class Learner;

/// Pairs of name and value, in display order.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns the data, model, optimizer, learning rates and precision of a
/// Learner.
Facts configuration(Learner& learner);

/// Returns versions, processor, device and system of this program, without the
/// names of the user and the machine.
Facts environment(torch::Device device);

/// Returns, for example, "tern::optim::AdamW", or a note that the first fit
/// creates the optimizer.
std::string optimizer_text(Learner& learner);

/// Returns the loop of `fit` as lines of text: each event with the callbacks
/// that act at it, in the order in which they run.
std::vector<std::string> training_loop(const Callbacks& callbacks);

}  // namespace tern
