#pragma once

#include "tern/learner/learner.h"

namespace tern {

/// Makes the fit that it takes part in a trial, before any other callback
/// looks.
struct Trial final : Callback {
  void on_train_begin(Learner& learn) override {
    learn.state().is_trial = true;
  }
  int order() const override { return callback_order::kFirst - 1; }
};

}  // namespace tern
