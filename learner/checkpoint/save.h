#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern {

class Learner;

/// Options of `Learner::load`.
struct LoadModelOptions {
  /// Which names may differ; for a new head use `{.strict = false,
  /// .ignore_mismatched_sizes = true}`.
  LoadOptions weights = {};
  /// Also load the optimizer's moments, learning rates and step counts. If
  /// false, the optimizer starts with a new state.
  bool with_optimizer = true;
};

/// True if the file that `Learner::save` wrote under this name belongs to this
/// run: it has the Learner's run id, which is kept on resume.
bool is_saved_by_run(Learner& learn, const std::string& name);

/// Removes the files that `Learner::save` wrote under this name, if they exist.
void remove_saved(const Learner& learn, const std::string& name);

/// A point in a run, as the numbers of completed fits and steps.
using TrainingMoment = std::pair<int64_t, int64_t>;

/// Renames the models that this run saved after the checkpoint from which it
/// was resumed, because they belong to an abandoned branch. "<name>" becomes
/// "<name>.replaced", which the next save of "<name>" deletes. If the run had a
/// model of this name at the checkpoint and it was kept, it is restored.
/// \return the new names of the renamed files.
std::vector<std::string> take_back_later_models(
    Learner& learn,
    const TrainingMoment& checkpoint);

/// Removes the older model that is kept for `take_back_later_models` under this
/// name, if the last checkpoint is newer than the current model.
void remove_earlier_model(Learner& learn, const std::string& name);

}  // namespace tern
