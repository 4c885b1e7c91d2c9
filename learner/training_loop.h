#pragma once

#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// Names of the callbacks that act at `event`, in the order in which they run.
std::vector<std::string> acting_at(
    const Callbacks& callbacks,
    void (Callback::*event)(Learner&));

/// The loop of `fit` as lines of text, each event with who acts there.
std::vector<std::string> training_loop(const Callbacks& callbacks);

}  // namespace tern
