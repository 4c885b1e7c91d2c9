#pragma once

/// What a Learner's layer groups and optimizer need of each other. Private to
/// Tern.
namespace tern {

struct LearnerParts;

namespace optim {

/// Makes the optimizer's state that of one that has not stepped yet: empty, or
/// what its constructor makes.
void clear_state(LearnerParts& l);

}  // namespace optim

}  // namespace tern
