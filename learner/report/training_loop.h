#pragma once

#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// The loop of `fit` as lines of text, each event with who acts there, in the
/// order in which they run.
std::vector<std::string> training_loop(const Callbacks& callbacks);

}  // namespace tern
