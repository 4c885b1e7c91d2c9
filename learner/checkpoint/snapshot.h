#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/extension.h"
#include "tern/learner/learner.h"

namespace tern {

struct StatePart;

/// All that training changes in a Learner (state_parts), copied where
/// it lies, and put back bit for bit.
class LearnerSnapshot {
 public:
  explicit LearnerSnapshot(Learner& learner);
  ~LearnerSnapshot();
  /// Callable more than once.
  void restore();

 private:
  void keep_optimizer(const StatePart& part);
  void put_optimizer_back();

  Learner& learner_;
  std::vector<std::pair<std::string, StateDict>> parts_;
  bool had_optimizer_;
  std::string optimizer_bytes_;  // of one that has no part
  // What a fit sets anew, and no checkpoint needs.
  TrainState state_;
  std::map<std::string, std::string> fit_settings_;
  // Out of the Learner meanwhile: it is for the fits that count.
  std::unique_ptr<Continuation> resume_;
};

}  // namespace tern
