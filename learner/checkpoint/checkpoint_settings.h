#pragma once

#include <map>
#include <string>
#include <vector>

#include "tern/learner/checkpoint/checkpoint.h"

namespace tern {

class Learner;

/// What a training is, in words: a checkpoint keeps it, and a continuation has
/// to agree. Private to Tern.
using Settings = std::map<std::string, std::string>;

/// Data (with a fingerprint), optimizer and precision; without a fit.
Settings training_settings(Learner& learner);

/// The same with those of the fit that runs or ran last.
Settings all_settings(Learner& learner);

/// Those of the fit that runs, as a continuation has to repeat them.
Settings running_fit_settings(Learner& learner);

/// Where `now` is not what the checkpoint has, as sentences.
std::vector<std::string> differences(
    const Settings& now,
    const Checkpoint& checkpoint);

}  // namespace tern
