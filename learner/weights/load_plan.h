#pragma once

#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/model.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// What of a state dict goes where, checked and not done yet.
struct LoadPlan {
  Tensors targets, values;  // of one type and device each
  LoadReport report;

  void apply() const;
};

/// \throws c10::ValueError as Model::load_state_dict.
LoadPlan plan_load(
    const std::vector<ModelTensor>& model,
    const StateDict& state,
    const LoadOptions& options);

}  // namespace tern
