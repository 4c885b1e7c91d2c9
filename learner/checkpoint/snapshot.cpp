#include "tern/learner/checkpoint/snapshot.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <torch/serialize.h>
#include <torch/utils.h>

#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

StateDict copies(const StateDict& state) {
  StateDict result;
  for (const auto& entry : state) {
    result.insert(entry.key(), entry.value().detach().clone());
  }
  return result;
}

}  // namespace

LearnerSnapshot::LearnerSnapshot(Learner& learner)
    : learner_(learner),
      had_optimizer_(learner.parts().optimizer != nullptr),
      state_(learner.state()),
      fit_settings_(learner.parts().fit_settings),
      resume_(std::move(learner.parts().continuation)) {
  for (const StatePart& part : state_parts(learner)) {
    if (part.name != "optimizer") {
      parts_.emplace_back(part.name, copies(part.capture()));
    } else if (had_optimizer_) {
      keep_optimizer(part);
    }
  }
}

// The state of an optimizer that no checkpoint could hold is kept as LibTorch
// writes it.
void LearnerSnapshot::keep_optimizer(const StatePart& part) {
  try {
    parts_.emplace_back(part.name, copies(part.capture()));
  } catch (const c10::NotImplementedError&) {
    std::ostringstream bytes;
    torch::save(learner_.optimizer(), bytes);
    optimizer_bytes_ = bytes.str();
  }
}

void LearnerSnapshot::put_optimizer_back() {
  if (!had_optimizer_) {
    learner_.parts().optimizer.reset();
  } else if (!optimizer_bytes_.empty()) {
    std::istringstream bytes(optimizer_bytes_);
    // Loading leaves alone what was not saved.
    learner_.optimizer().state().clear();
    torch::load(learner_.optimizer(), bytes);
  }
}

LearnerSnapshot::~LearnerSnapshot() {
  if (resume_) learner_.parts().continuation = std::move(resume_);
}

void LearnerSnapshot::restore() {
  const torch::NoGradGuard no_grad;
  put_optimizer_back();
  bool is_told = false;
  for (const StatePart& part : state_parts(learner_)) {
    // Before callbacks get back what they had made from the weights.
    const bool is_of_model = part.name == "model" || part.name == "optimizer";
    if (!is_of_model && !std::exchange(is_told, true)) {
      loop::state_was_replaced(learner_.parts());
    }
    const auto saved =
        std::find_if(parts_.begin(), parts_.end(), [&](const auto& entry) {
          return entry.first == part.name;
        });
    if (saved == parts_.end() || saved->second.is_empty()) continue;
    part.restore(saved->second);
  }
  learner_.parts().state = state_;
  learner_.parts().first_batch = 0;
  learner_.parts().fit_settings = fit_settings_;
}

}  // namespace tern
