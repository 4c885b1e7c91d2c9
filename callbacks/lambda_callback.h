#pragma once

#include <array>
#include <functional>

#include "tern/learner/callback.h"

namespace tern {

/// A callback made of functions, for a moment that needs no class:
///
///   learn.add<LambdaCallback>({.on_epoch_end = [](Learner& learn) { ... }});
struct LambdaCallbackOptions {
  using Function = std::function<void(Learner&)>;
  Function on_train_begin = {}, on_epoch_begin = {}, on_batch_begin = {},
           on_loss_begin = {}, on_backward_begin = {}, on_backward_end = {},
           on_step = {}, on_step_end = {}, on_batch_end = {}, on_epoch_end = {},
           on_train_end = {}, on_eval_begin = {}, on_eval_end = {},
           on_interrupt = {}, on_load = {};
  int order = 0;
};

class LambdaCallback final : public Callback {
 public:
  using Options = LambdaCallbackOptions;

  explicit LambdaCallback(LambdaCallbackOptions options)
      : on_(std::move(options)) {}

#define TERN_CALLS(event) \
  void event(Learner& learn) override { on_.event(learn); }
  TERN_EVENTS(TERN_CALLS)
#undef TERN_CALLS

  bool acts_at(Event event) const override {
    return static_cast<bool>(on_.*kFunctions[static_cast<size_t>(event)]);
  }
  int order() const override { return on_.order; }

 private:
  static constexpr std::array<
      LambdaCallbackOptions::Function LambdaCallbackOptions::*,
      kEventCount>
      kFunctions = {
#define TERN_FUNCTION(event) &LambdaCallbackOptions::event,
          TERN_EVENTS(TERN_FUNCTION)
#undef TERN_FUNCTION
      };

  LambdaCallbackOptions on_;
};

}  // namespace tern
