#pragma once

#include <bitset>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern {

class Learner;

/// The events of the training loop. Each is a method of Callback, in this
/// order.
enum class Event {
  train_begin,
  epoch_begin,
  batch_begin,
  loss_begin,
  backward_begin,
  backward_end,
  step,
  step_end,
  batch_end,
  epoch_end,
  train_end,
  eval_begin,
  eval_end,
  interrupt,
  load
};
constexpr size_t kEventCount = static_cast<size_t>(Event::load) + 1;
using EventSet = std::bitset<kEventCount>;

/// The kind of a callback, which determines the events that it receives.
enum class CallbackRole {
  /// Takes part in training; receives every event.
  trains,
  /// Only observes: prints, evaluates or averages. Receives no events in dry
  /// runs, whose effects are undone (lr_find, plan, dry_run, max_batch_size).
  watches,
  /// Like `watches`, and writes files; receives events on rank 0 only.
  writes
};

/// Names and values of a callback's options.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// Code that runs at the events of the training loop. Derive from it and
/// override only the events you need; `learner/fit.cpp` shows when each one is
/// sent.
///
///   struct PrintLoss : tern::Callback {
///     void on_epoch_end(tern::Learner& learn) override { ... }
///   };
///   learn.add<PrintLoss>().fit(3);
///
/// A callback communicates with the loop through `learn.state()`: it reads the
/// loop's values, and may replace the batch, the outputs and the loss, or set
/// the skip and stop fields. An exception that it throws ends `fit` and reaches
/// the caller.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Learner&) {}
  virtual void on_epoch_begin(Learner&) {}
  /// Called when the batch is on the device and transformed. This event,
  /// on_loss_begin and on_batch_end are also sent during evaluation, with
  /// `state().training` false.
  virtual void on_batch_begin(Learner&) {}
  virtual void on_loss_begin(Learner&) {}
  virtual void on_backward_begin(Learner&) {}
  /// Called after each backward pass, even if it only accumulates gradients.
  /// From here to on_step, `learn.gradients()` returns unscaled fp32 gradients,
  /// averaged over ranks.
  virtual void on_backward_end(Learner&) {}
  /// Called just before the optimizer's step. on_step and on_step_end are not
  /// sent for a batch that only accumulates gradients, nor after `skip_step`
  /// was set.
  virtual void on_step(Learner&) {}
  virtual void on_step_end(Learner&) {}
  virtual void on_batch_end(Learner&) {}
  virtual void on_epoch_end(Learner&) {}
  /// Also called after an exception.
  virtual void on_train_end(Learner&) {}
  /// on_eval_begin and on_eval_end enclose each evaluation: the validation of
  /// an epoch, `validate`, `get_preds` and `predict`. on_eval_end is also
  /// called after an exception.
  virtual void on_eval_begin(Learner&) {}
  virtual void on_eval_end(Learner&) {}
  /// Called when request_stop ends the fit: the current step is complete, the
  /// epoch is not.
  virtual void on_interrupt(Learner&) {}
  /// Called when weights or optimizer state were replaced from outside
  /// training: by load, load_state_dict or resume, or when a dry run is undone.
  virtual void on_load(Learner&) {}
  /// Called when an exception ends the fit. May throw a more informative
  /// exception.
  virtual void on_exception(Learner&, const std::exception&) {}

  /// Called before the callback is added; `learn.callbacks()` does not contain
  /// it yet. Should throw if the callback cannot be combined with another one.
  /// During a fit, on_train_begin follows at once, and within an epoch
  /// on_epoch_begin.
  virtual void on_add(Learner&) {}
  /// Called after the callback was removed; if this throws, the Learner adds it
  /// back. During a fit, on_train_end follows, with `state().is_removal` set.
  virtual void on_remove(Learner&) {}

  /// Returns the state that this callback needs for an exact resume.
  virtual StateDict state_dict() const { return StateDict(); }
  /// Restores what `state_dict` returned. At the end of a dry run and on
  /// resume, this is also called with an empty state, if the state was empty
  /// when it was saved but is not empty now.
  virtual void load_state_dict(const StateDict&) {}

  /// For loggers: flushes the log and returns its position when a checkpoint is
  /// saved, so that a resumed run continues the log without gaps or repeats;
  /// see take_resumed_log of learner/checkpoint/resume.h. Unlike `state_dict`
  /// this is not part of the training state: a resumed run may use other
  /// loggers.
  virtual StateDict log_state(Learner&) { return StateDict(); }

  virtual CallbackRole role() const { return CallbackRole::trains; }

  /// Restricts this object to some of the events that its class overrides.
  virtual bool acts_at(Event) const { return true; }

  /// True if from on_loss_begin to on_step_end the callback launches the same
  /// kernels every step and never synchronizes with the host: a CUDA graph then
  /// replays these kernels without calling the callback. See
  /// learner/cuda_graph/step_graph.h.
  virtual bool can_be_replayed() const { return false; }

  /// Callbacks run in ascending order; callbacks with equal order run in the
  /// order in which they were added.
  virtual int order() const { return 0; }

  /// The name of the class, as shown by `show_training_loop`.
  virtual std::string name() const;

  /// Returns the options that this callback was created with, for reports.
  /// Empty by default.
  virtual OptionValues option_values() const { return {}; }
};

/// A shared callback together with the events that its class overrides. A
/// handle created from a pointer to the base class receives all events.
class CallbackHandle {
 public:
  CallbackHandle() = default;
  template <class C>
    requires std::is_base_of_v<Callback, C>
  CallbackHandle(std::shared_ptr<C> callback)  // NOLINT: implicit on purpose
      : events_(overridden_events<C>()), callback_(std::move(callback)) {}
  template <class C>
    requires std::is_base_of_v<Callback, C>
  CallbackHandle(const C&) {  // NOLINT: as above
    static_assert(
        !sizeof(C),
        "[Callback] expected a shared callback: learn.add<C>(...) or, in a "
        "list, std::make_shared<C>(...)");
  }

  Callback* get() const { return callback_.get(); }
  Callback* operator->() const { return callback_.get(); }
  Callback& operator*() const { return *callback_; }
  explicit operator bool() const { return callback_ != nullptr; }
  operator const std::shared_ptr<Callback>&() const {  // NOLINT: as above
    return callback_;
  }
  bool operator==(const CallbackHandle& other) const {
    return callback_ == other.callback_;
  }

  bool acts_at(Event event) const {
    return events_[static_cast<size_t>(event)] && callback_->acts_at(event);
  }
  /// Calls the callback's method of this event.
  void operator()(Event event, Learner& learn) const;

 private:
  template <class C>
  static EventSet overridden_events();
  template <class C>
  static void is_called(void (C::*event)(Learner&));

  EventSet events_;
  std::shared_ptr<Callback> callback_;
};

using Callbacks = std::vector<CallbackHandle>;

// `&C::on_step` has Callback's type only if no class between C and Callback
// overrides it. If it cannot be named (a private override), C receives the
// event.
template <class C>
EventSet CallbackHandle::overridden_events() {
  using Base = void (Callback::*)(Learner&);
  EventSet events;
// A macro, because a member can only be looked up by name.
#define TERN_FIND_OVERRIDE(event)                                           \
  events[static_cast<size_t>(Event::event)] =                               \
      []<class T>(std::type_identity<T>) {                                  \
        if constexpr (!std::is_same_v<T, Callback> && requires {            \
                        &T::on_##event;                                     \
                      }) {                                                  \
          static_assert(                                                    \
              requires { is_called(&T::on_##event); },                      \
              "[Callback] the loop cannot call on_" #event                  \
              ": write void on_" #event "(tern::Learner& learn) override"); \
          return !std::is_same_v<decltype(&T::on_##event), Base>;           \
        }                                                                   \
        return true;                                                        \
      }(std::type_identity<C>());
  TERN_FIND_OVERRIDE(train_begin)
  TERN_FIND_OVERRIDE(epoch_begin)
  TERN_FIND_OVERRIDE(batch_begin)
  TERN_FIND_OVERRIDE(loss_begin)
  TERN_FIND_OVERRIDE(backward_begin)
  TERN_FIND_OVERRIDE(backward_end)
  TERN_FIND_OVERRIDE(step)
  TERN_FIND_OVERRIDE(step_end)
  TERN_FIND_OVERRIDE(batch_end)
  TERN_FIND_OVERRIDE(epoch_end)
  TERN_FIND_OVERRIDE(train_end)
  TERN_FIND_OVERRIDE(eval_begin)
  TERN_FIND_OVERRIDE(eval_end)
  TERN_FIND_OVERRIDE(interrupt)
  TERN_FIND_OVERRIDE(load)
#undef TERN_FIND_OVERRIDE
  return events;
}

/// Creates a callback for `Learner::add`.
template <class C, class... A>
CallbackHandle make_callback(A&&... arguments) {
  static_assert(
      std::is_base_of_v<Callback, C>,
      "[Learner::add] this is not a callback; derive it from tern::Callback.");
  static_assert(
      std::is_constructible_v<C, A...>,
      "[Learner::add] the callback takes other arguments; pass its options in "
      "braces, by name: learn.add<C>({.field = value})");
  if constexpr (std::is_constructible_v<C, A...>) {
    return std::make_shared<C>(std::forward<A>(arguments)...);
  }
}

/// The order of Tern's own callbacks. A callback that changes gradients needs
/// an order above `kMixedPrecision`, where unscaled gradients are available.
namespace callback_order {
constexpr int kFirst = -1000;
constexpr int kLoaders = -30;  // change the training data
constexpr int kScheduler = -20;
constexpr int kRecorder = -10;
constexpr int kTerminate = -9;
constexpr int kGradientPenalty = 4;
constexpr int kGradientAccumulation = 5;
constexpr int kMixedPrecision = 10;
constexpr int kGradientClip = 20;
constexpr int kAverages = 30;  // averaged weights, after a step
constexpr int kProgress = 60;
constexpr int kLogger = 61;
constexpr int kSaveModel = 70;
constexpr int kPlateau = 71;
constexpr int kEarlyStopping = 72;
constexpr int kLast = 1000;
/// Runs last, so that a checkpoint contains the decisions of all other
/// callbacks.
constexpr int kSaveCheckpoint = kLast + 1;
}  // namespace callback_order

}  // namespace tern
