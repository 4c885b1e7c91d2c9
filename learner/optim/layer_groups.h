#pragma once

/// What a Learner's layer groups and optimizer need of each other. Private to
/// Tern.
namespace tern {

struct LearnerParts;

namespace optim {

/// Makes the optimizer's state that of one that has not stepped yet: empty, or
/// what its constructor makes.
void clear_state(LearnerParts& l);

/// Gives the optimizer, if there is one, the parameters of the layer groups,
/// which have changed. It remains the same object, and keeps its state and
/// hyper-parameters of the parameters that it had.
void follow_groups(LearnerParts& l);

}  // namespace optim

}  // namespace tern
