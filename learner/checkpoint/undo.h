#pragma once

#include <functional>

namespace tern {

class Learner;

/// Calls `body`, then restores everything in `learn` that training changes, bit
/// for bit, even after an exception. For lr_find, plan and similar functions.
void undo(Learner& learn, const std::function<void()>& body);

}  // namespace tern
