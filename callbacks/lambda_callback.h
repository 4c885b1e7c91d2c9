#pragma once

#include <array>
#include <functional>

#include "tern/learner/callback.h"

namespace tern {

/// Functions of a LambdaCallback, one per event. Events without a function are
/// ignored.
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

  void on_train_begin(Learner& learn) override { on_.on_train_begin(learn); }
  void on_epoch_begin(Learner& learn) override { on_.on_epoch_begin(learn); }
  void on_batch_begin(Learner& learn) override { on_.on_batch_begin(learn); }
  void on_loss_begin(Learner& learn) override { on_.on_loss_begin(learn); }
  void on_backward_begin(Learner& learn) override {
    on_.on_backward_begin(learn);
  }
  void on_backward_end(Learner& learn) override { on_.on_backward_end(learn); }
  void on_step(Learner& learn) override { on_.on_step(learn); }
  void on_step_end(Learner& learn) override { on_.on_step_end(learn); }
  void on_batch_end(Learner& learn) override { on_.on_batch_end(learn); }
  void on_epoch_end(Learner& learn) override { on_.on_epoch_end(learn); }
  void on_train_end(Learner& learn) override { on_.on_train_end(learn); }
  void on_eval_begin(Learner& learn) override { on_.on_eval_begin(learn); }
  void on_eval_end(Learner& learn) override { on_.on_eval_end(learn); }
  void on_interrupt(Learner& learn) override { on_.on_interrupt(learn); }
  void on_load(Learner& learn) override { on_.on_load(learn); }

  bool acts_at(Event event) const override {
    return static_cast<bool>(on_.*kFunctions[static_cast<size_t>(event)]);
  }
  int order() const override { return on_.order; }

 private:
  static constexpr std::array<
      LambdaCallbackOptions::Function LambdaCallbackOptions::*,
      kEventCount>
      kFunctions = {
          &LambdaCallbackOptions::on_train_begin,
          &LambdaCallbackOptions::on_epoch_begin,
          &LambdaCallbackOptions::on_batch_begin,
          &LambdaCallbackOptions::on_loss_begin,
          &LambdaCallbackOptions::on_backward_begin,
          &LambdaCallbackOptions::on_backward_end,
          &LambdaCallbackOptions::on_step,
          &LambdaCallbackOptions::on_step_end,
          &LambdaCallbackOptions::on_batch_end,
          &LambdaCallbackOptions::on_epoch_end,
          &LambdaCallbackOptions::on_train_end,
          &LambdaCallbackOptions::on_eval_begin,
          &LambdaCallbackOptions::on_eval_end,
          &LambdaCallbackOptions::on_interrupt,
          &LambdaCallbackOptions::on_load};  // in the order of Event

  LambdaCallbackOptions on_;
};

}  // namespace tern
