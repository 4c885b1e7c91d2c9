// Calls the callbacks for the events of the loop, in order.

#include <algorithm>
#include <array>
#include <chrono>
#include <typeinfo>

#include <c10/util/ScopeExit.h>
#include <c10/util/Type.h>
#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/data/support/mentions.h"
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
      return !l.state.is_dry_run;
    case CallbackRole::writes:
      return !l.state.is_dry_run && communicator(*l.self).is_main_process();
  }
  return true;
}

namespace {

// Returns the callbacks that have received this event, if it is an event that
// callbacks receive even if they are added late.
std::optional<std::set<const Callback*>>* begun(LearnerParts& l, Event event) {
  if (event == Event::train_begin) return &l.callbacks.begun_fit;
  if (event == Event::epoch_begin) return &l.callbacks.begun_epoch;
  return nullptr;
}

}  // namespace

// Iterates by index, because a callback may add or remove callbacks, including
// itself. Removed callbacks are kept alive until the loop ends.
void loop::run(LearnerParts& l, Event event) {
  using Clock = std::chrono::steady_clock;
  // Nested calls are possible: a callback may call validate, which calls
  // callbacks.
  const auto leave = c10::make_scope_exit(
      [&l, outer = l.callbacks.running, event = l.callbacks.event] {
        l.callbacks.running = outer;
        l.callbacks.event = event;
        if (!outer) l.callbacks.removed.clear();
      });
  auto* const had_it = begun(l, event);
  if (had_it) had_it->emplace();
  for (size_t i = 0; i < l.callbacks.all.size(); ++i) {
    Callback* const callback = l.callbacks.all[i].get();
    if (had_it && !(*had_it)->insert(callback).second) continue;
    if (!receives(l, l.callbacks.all[i], event)) continue;
    l.callbacks.running = callback;
    l.callbacks.event = event;
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
      // If it was removed, the next callback is now at its index. If it was
      // moved, continues after it.
      i = at == l.callbacks.all.end() ? i - 1 : at - l.callbacks.all.begin();
    }
  }
}

void loop::begin_late(LearnerParts& l, const CallbackHandle& callback) {
  const auto place = [&l](const Callback* c) {
    return std::ranges::find(l.callbacks.all, c, &CallbackHandle::get);
  };
  if (l.callbacks.begun_fit) l.callbacks.added_in_fits.insert(callback.get());
  std::vector<Event> missed;
  for (const Event event : {Event::train_begin, Event::epoch_begin}) {
    // `run` will still reach the callbacks after the running one.
    const bool is_to_come = l.callbacks.event == event &&
                            place(callback.get()) > place(l.callbacks.running);
    if (*begun(l, event) && !is_to_come) missed.push_back(event);
  }
  const auto leave = c10::make_scope_exit(
      [&l, outer = l.callbacks.running, event = l.callbacks.event] {
        l.callbacks.running = outer;
        l.callbacks.event = event;
      });
  for (const Event event : missed) {
    (*begun(l, event))->insert(callback.get());
    if (!receives(l, callback, event)) continue;
    l.callbacks.running = callback.get();
    l.callbacks.event = event;
    callback(event, *l.self);
  }
}

void loop::end_early(LearnerParts& l, const CallbackHandle& callback) {
  l.callbacks.added_in_fits.erase(callback.get());
  auto& begun_fit = l.callbacks.begun_fit;
  if (!begun_fit || begun_fit->erase(callback.get()) == 0) return;
  if (l.callbacks.begun_epoch) l.callbacks.begun_epoch->erase(callback.get());
  if (!receives(l, callback, Event::train_end)) return;
  const auto leave = c10::make_scope_exit([&l, outer = l.callbacks.running] {
    l.callbacks.running = outer;
    l.state.is_removal = false;
  });
  l.callbacks.running = callback.get();
  l.state.is_removal = true;
  callback(Event::train_end, *l.self);
}

std::vector<std::pair<std::string, Callback*>> loop::named_callbacks(
    const LearnerParts& l) {
  std::vector<std::pair<std::string, Callback*>> result;
  std::map<std::string, int64_t> seen;
  for (const auto& callback : l.callbacks.all) {
    const std::string name = callback->name();
    result.emplace_back(
        fmt::format("callbacks/{} {}", name, seen[name]++),
        callback.get());
  }
  return result;
}

std::vector<std::pair<std::string, CallbackHandle>> loop::names_in_fit(
    const LearnerParts& l) {
  std::vector<std::pair<std::string, CallbackHandle>> result;
  std::map<std::string, int64_t> seen;
  for (const auto& callback : l.callbacks.all) {
    const bool is_extra = l.callbacks.extras.contains(callback.get());
    const std::string name =
        (is_extra ? "of the fit/" : "callbacks/") + callback->name();
    result.emplace_back(fmt::format("{} {}", name, seen[name]++), callback);
  }
  return result;
}

std::vector<std::string> loop::removed_in_fit(const LearnerParts& l) {
  std::vector<std::string> result;
  for (const auto& [name, callback] : l.callbacks.at_fit_begin) {
    const std::shared_ptr<Callback> there = callback.lock();
    const bool is_in =
        there &&
        std::ranges::find(l.callbacks.all, there.get(), &CallbackHandle::get) !=
            l.callbacks.all.end();
    if (!is_in) result.push_back(name);
  }
  return result;
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
        const std::string text = message_of(error);
        const bool is_named = mentions(text, "[" + callback->name() + "]");
        l.self->options().sink->warning(fmt::format(
            "{} also failed at the end: {}",
            is_named ? "A callback" : callback->name(),
            text));
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

void loop::replace_weight_copies(LearnerParts& l) {
  if (auto* const copies = dynamic_cast<CopiesWeights*>(l.optimizer.get())) {
    copies->weights_replaced();
  }
}

void loop::invalidate_derived_state(LearnerParts& l) {
  if (l.step.runner) l.step.runner->forget();
  run(l, Event::load);
}

}  // namespace tern
