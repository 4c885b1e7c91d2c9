#include "tern/learner/checkpoint/undo.h"

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <torch/serialize.h>
#include <torch/types.h>
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

// The parts of a Learner's state, copied where they lie.
class Snapshot {
 public:
  explicit Snapshot(Learner& learner)
      : learner_(learner),
        had_optimizer_(learner.parts().optimizer != nullptr),
        state_(learner.state()),
        fit_settings_(learner.parts().fit_settings),
        resume_(std::move(learner.parts().continuation)) {
    for (const StatePart& part : state_parts(learner)) {
      if (part.name == "optimizer" && !had_optimizer_) continue;
      try {
        parts_[part.name] = copies(part.capture());
      } catch (const c10::NotImplementedError&) {
        // An optimizer that no checkpoint could hold is kept as LibTorch
        // writes it.
        if (part.name != "optimizer") throw;
        std::ostringstream bytes;
        torch::save(learner.optimizer(), bytes);
        optimizer_bytes_ = bytes.str();
      }
    }
  }
  ~Snapshot() {
    if (resume_) learner_.parts().continuation = std::move(resume_);
  }
  Snapshot(const Snapshot&) = delete;

  void restore() {
    const torch::NoGradGuard no_grad;
    restore_optimizer();
    bool is_told = false;
    for (const StatePart& part : state_parts(learner_)) {
      // Before callbacks get back what they had made from the weights.
      if (!part.has_own_file() && !std::exchange(is_told, true)) {
        loop::state_was_replaced(learner_.parts());
      }
      const auto saved = parts_.find(part.name);
      if (saved == parts_.end() || saved->second.is_empty()) continue;
      part.restore(saved->second);
    }
    learner_.parts().state = state_;
    learner_.parts().first_batch = 0;
    learner_.parts().fit_settings = fit_settings_;
  }

 private:
  void restore_optimizer() {
    if (!had_optimizer_) {
      learner_.parts().optimizer.reset();
    } else if (!optimizer_bytes_.empty()) {
      std::istringstream bytes(optimizer_bytes_);
      // Loading leaves alone what was not saved.
      learner_.optimizer().state().clear();
      torch::load(learner_.optimizer(), bytes);
    }
  }

  Learner& learner_;
  std::map<std::string, StateDict> parts_;
  bool had_optimizer_;
  std::string optimizer_bytes_;  // of one that has no part
  // Set by each fit, so that no checkpoint needs it.
  TrainState state_;
  std::map<std::string, std::string> fit_settings_;
  // Out of the Learner meanwhile: it is for the fits that count.
  std::unique_ptr<Continuation> resume_;
};

}  // namespace

void undo(Learner& learn, const std::function<void()>& body) {
  Snapshot before(learn);
  try {
    body();
  } catch (...) {
    before.restore();
    throw;
  }
  before.restore();
}

}  // namespace tern
