#pragma once

#include <functional>

namespace tern {

class Learner;

/// Calls `body`, then restores everything that training changes in `learn`, bit
/// for bit; after an exception too. For lr_find, plan and their like.
void undo(Learner& learn, const std::function<void()>& body);

}  // namespace tern
