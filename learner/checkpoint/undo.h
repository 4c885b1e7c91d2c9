#pragma once

#include <functional>

namespace tern {

class Learner;

/// Calls `body`, then restores everything that training changes in `learn`, bit
/// for bit, also after an exception. For lr_find, plan and similar functions.
void undo(Learner& learn, const std::function<void()>& body);

}  // namespace tern
