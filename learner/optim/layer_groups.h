#pragma once

namespace tern {

struct LearnerParts;

namespace optim {

/// Resets the optimizer's state to that before the first step: empty, or the
/// initial state that its constructor creates (Adagrad). Private to Tern, for
/// `Learner::freeze`, `unfreeze` and `load`.
void clear_state(LearnerParts& l);

}  // namespace optim

}  // namespace tern
