#pragma once

#include <utility>

#include "tern/learner/model.h"

namespace tern {

/// Sets a model to eval mode for its lifetime, and then restores the previous
/// mode. Like NoGradGuard, it cannot be copied or moved.
///
///   const torch::NoGradGuard no_grad;
///   const EvalModeGuard eval(model);
///   Tensors outputs = model.forward(inputs);
class EvalModeGuard {
 public:
  explicit EvalModeGuard(Model model)
      : model_(std::move(model)), was_training_(model_.is_training()) {
    model_.eval();
  }
  ~EvalModeGuard() { model_.train(was_training_); }
  EvalModeGuard(const EvalModeGuard&) = delete;
  EvalModeGuard& operator=(const EvalModeGuard&) = delete;

 private:
  Model model_;  // shares its module with the caller's model
  bool was_training_;
};

}  // namespace tern
