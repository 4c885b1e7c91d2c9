// Who is told of the loop's events, and in which order.

#include <algorithm>
#include <array>
#include <chrono>
#include <typeinfo>

#include <c10/util/ScopeExit.h>
#include <c10/util/Type.h>
#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/loop.h"
#include "tern/learner/module_names.h"

namespace tern {

std::string Callback::name() const {
  return unqualified_name(c10::demangle(typeid(*this).name()));
}

void CallbackHandle::operator()(Event event, Learner& learn) const {
  static constexpr std::array<void (Callback::*)(Learner&), kEventCount>
      kMethods = {
          &Callback::on_train_begin,
          &Callback::on_epoch_begin,
          &Callback::on_batch_begin,
          &Callback::on_loss_begin,
          &Callback::on_backward_begin,
          &Callback::on_backward_end,
          &Callback::on_step,
          &Callback::on_step_end,
          &Callback::on_batch_end,
          &Callback::on_epoch_end,
          &Callback::on_train_end,
          &Callback::on_eval_begin,
          &Callback::on_eval_end,
          &Callback::on_interrupt,
          &Callback::on_load};  // in the order of Event
  (callback_.get()->*kMethods[static_cast<size_t>(event)])(learn);
}

bool loop::receives(
    const LearnerParts& l,
    const CallbackHandle& callback,
    Event event) {
  if (!callback.acts_at(event)) return false;
  switch (callback->role()) {
    case CallbackRole::trains:
      return true;
    case CallbackRole::watches:
      return !l.state.is_trial;
    case CallbackRole::writes:
      return !l.state.is_trial && communicator(*l.self).is_main_process();
  }
  return true;
}

// By index: a callback may add or remove callbacks, itself too. What it removes
// lives until this is over.
void loop::run(LearnerParts& l, Event event) {
  using Clock = std::chrono::steady_clock;
  // A callback may have the Learner validate, which calls callbacks again.
  const auto leave = c10::make_scope_exit([&l, outer = l.callbacks.running] {
    l.callbacks.running = outer;
    if (!outer) l.callbacks.removed.clear();
  });
  for (size_t i = 0; i < l.callbacks.all.size(); ++i) {
    if (!receives(l, l.callbacks.all[i], event)) continue;
    Callback* const callback = l.callbacks.all[i].get();
    l.callbacks.running = callback;
    auto* const seconds = l.callbacks.seconds;
    const auto begin = seconds ? Clock::now() : Clock::time_point();
    l.callbacks.all[i](event, *l.self);
    if (seconds && seconds == l.callbacks.seconds) {
      const std::chrono::duration<double> time = Clock::now() - begin;
      (*seconds)[callback] += time.count();
    }
    if (i < l.callbacks.all.size() && l.callbacks.all[i].get() != callback) {
      const auto at = std::find_if(
          l.callbacks.all.begin(),
          l.callbacks.all.end(),
          [&](const auto& other) { return other.get() == callback; });
      // Removed: the next one has taken its place. Moved: go on behind it.
      i = at == l.callbacks.all.end() ? i - 1 : at - l.callbacks.all.begin();
    }
  }
}

std::exception_ptr loop::run_all(LearnerParts& l, Event event, bool failed) {
  std::exception_ptr first;
  for (const auto& callback : Callbacks(l.callbacks.all)) {
    if (!receives(l, callback, event)) continue;
    try {
      callback(event, *l.self);
    } catch (const std::exception& error) {
      if (!failed && !first) {
        first = std::current_exception();
      } else {
        l.self->options().sink->warning(fmt::format(
            "{} failed too, at the end: {}",
            callback->name(),
            message_of(error)));
      }
    } catch (...) {
      if (!failed && !first) first = std::current_exception();
    }
  }
  return first;
}

void loop::run_exception(LearnerParts& l, const std::exception& error) {
  for (const auto& callback : Callbacks(l.callbacks.all)) {
    callback->on_exception(*l.self, error);
  }
}

void loop::invalidate_derived_state(LearnerParts& l) {
  if (l.step.runner) l.step.runner->forget();
  run(l, Event::load);
}

}  // namespace tern
