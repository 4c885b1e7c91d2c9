#pragma once

/// Functions shared by a Learner's layer groups and its optimizer. Private to
/// Tern.
namespace tern {

struct LearnerParts;

namespace optim {

/// Resets the optimizer's state to the state before the first step: empty, or
/// as created by the constructor.
void clear_state(LearnerParts& l);

}  // namespace optim

}  // namespace tern
