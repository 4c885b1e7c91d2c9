#pragma once

/// Functions that a Learner's layer groups and its optimizer need from each
/// other. Private to Tern.
namespace tern {

struct LearnerParts;

namespace optim {

/// Resets the optimizer's state to that before the first step: empty, or what
/// the constructor creates.
void clear_state(LearnerParts& l);

}  // namespace optim

}  // namespace tern
