#pragma once

#include <functional>

namespace tern {

class Learner;

/// Calls `body`, then restores the bit-identical state of everything in `learn`
/// that training changes, also after an exception. For lr_find, plan and
/// similar functions.
void undo(Learner& learn, const std::function<void()>& body);

}  // namespace tern
