// Who is told of the loop's events, and in which order.

#include <algorithm>
#include <array>
#include <typeinfo>

#include <c10/util/ScopeExit.h>
#include <c10/util/Type.h>
#include <fmt/format.h>

#include "tern/data/error_text.h"
#include "tern/learner/loop.h"
#include "tern/learner/recorder.h"

namespace tern {

std::string Callback::name() const {
  const std::string name = c10::demangle(typeid(*this).name());
  const size_t scope = name.rfind("::", name.find('<'));
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

void CallbackHandle::operator()(Event event, Learner& learn) const {
  static constexpr std::array<void (Callback::*)(Learner&), kEventCount>
      kMethods = {
#define TERN_METHOD(event) &Callback::event,
          TERN_EVENTS(TERN_METHOD)
#undef TERN_METHOD
      };
  (callback_.get()->*kMethods[static_cast<size_t>(event)])(learn);
}

Learner& Learner::add(CallbackHandle callback) {
  TORCH_CHECK_VALUE(
      static_cast<bool>(callback),
      "[Learner::add] the callback is null; give a callback.");
  TORCH_CHECK_VALUE(
      std::find(parts_->callbacks.begin(), parts_->callbacks.end(), callback) ==
          parts_->callbacks.end(),
      "[Learner::add] this callback was added already; add it once.");
  callback->on_add(*this);
  if (auto* const policy = dynamic_cast<PrecisionPolicy*>(callback.get())) {
    parts_->precision = policy;
  }
  const auto after = std::upper_bound(
      parts_->callbacks.begin(),
      parts_->callbacks.end(),
      callback,
      [](const auto& a, const auto& b) { return a->order() < b->order(); });
  parts_->callbacks.insert(after, std::move(callback));
  if (parts_->step_runner) parts_->step_runner->forget();
  return *this;
}

Learner& Learner::remove(const Callback& callback) {
  TORCH_CHECK_VALUE(
      &callback != parts_->recorder.get(),
      "[Learner::remove] the Recorder cannot be removed: other callbacks read "
      "what it measures. For a Learner that prints nothing set .sink = "
      "silent().");
  const auto at = std::find_if(
      parts_->callbacks.begin(),
      parts_->callbacks.end(),
      [&](const auto& other) { return other.get() == &callback; });
  if (at == parts_->callbacks.end()) return *this;
  const CallbackHandle removed = *at;
  parts_->callbacks.erase(at);
  if (parts_->running_callback) parts_->removed_callbacks.push_back(removed);
  removed->on_remove(*this);
  auto* const policy = dynamic_cast<PrecisionPolicy*>(removed.get());
  if (policy && policy == parts_->precision) parts_->precision = nullptr;
  if (parts_->step_runner) parts_->step_runner->forget();
  return *this;
}

bool loop::hears(
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
  // A callback may have the Learner validate, which calls callbacks again.
  const auto leave = c10::make_scope_exit([&l, outer = l.running_callback] {
    l.running_callback = outer;
    if (!outer) l.removed_callbacks.clear();
  });
  for (size_t i = 0; i < l.callbacks.size(); ++i) {
    if (!hears(l, l.callbacks[i], event)) continue;
    Callback* const callback = l.callbacks[i].get();
    l.running_callback = callback;
    l.callbacks[i](event, *l.self);
    if (i < l.callbacks.size() && l.callbacks[i].get() != callback) {
      const auto at = std::find_if(
          l.callbacks.begin(),
          l.callbacks.end(),
          [&](const auto& other) { return other.get() == callback; });
      // Removed: the next one has taken its place. Moved: go on behind it.
      i = at == l.callbacks.end() ? i - 1 : at - l.callbacks.begin();
    }
  }
}

std::exception_ptr loop::run_all(LearnerParts& l, Event event, bool failed) {
  std::exception_ptr first;
  for (const auto& callback : Callbacks(l.callbacks)) {
    if (!hears(l, callback, event)) continue;
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
  for (const auto& callback : Callbacks(l.callbacks)) {
    callback->on_exception(*l.self, error);
  }
}

void loop::state_was_replaced(LearnerParts& l) {
  if (l.step_runner) l.step_runner->forget();
  run(l, Event::load);
}

}  // namespace tern
