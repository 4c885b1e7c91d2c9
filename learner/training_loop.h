#pragma once

#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// The callbacks that act at `event`, in the order in which they run.
Callbacks acting_at(
    const Callbacks& callbacks,
    void (Callback::*event)(Learner&));

/// The loop of `fit` as lines of text, each event with who acts there.
std::vector<std::string> training_loop(const Callbacks& callbacks);

}  // namespace tern
