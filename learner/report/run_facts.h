#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace tern {

class Learner;

/// Names with values, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Data, model, optimizer, rates and precision of a Learner.
Facts configuration(Learner& learner);

/// Versions, processor, device and system that this program runs with. Neither
/// the user's nor the machine's name is among them.
Facts environment(torch::Device device);

/// "tern::optim::AdamW", or that it is made when the first fit begins.
std::string optimizer_text(Learner& learner);

}  // namespace tern
