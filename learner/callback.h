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

/// The moments of the training loop; each is a method of Callback, in this
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

/// What a callback is for; the loop decides by it which events reach it, so
/// that no callback has to ask.
enum class CallbackRole {
  trains,   // takes part in training: every event
  watches,  // prints, judges, averages: nothing of trials, which are undone
            // (lr_find, plan, dry_run, max_batch_size)
  writes    // watches and writes files: on rank 0 only
};

/// Names and values of a callback's options.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// Code that runs at named moments of the training loop. Derive, and override
/// just the moments you need; `learner/fit.cpp` shows each in its place.
///
///   struct PrintLoss : tern::Callback {
///     void on_epoch_end(tern::Learner& learn) override { ... }
///   };
///   learn.add<PrintLoss>().fit(3);
///
/// A callback talks to the loop through `learn.state()`: it reads what the loop
/// wrote and may replace the batch, outputs and loss, or set the skip and stop
/// fields. What it throws ends `fit` and reaches the caller.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Learner&) {}
  virtual void on_epoch_begin(Learner&) {}
  /// The batch is on the device and transformed. Also in validation, where
  /// `state().training` is false, as are on_loss_begin and on_batch_end.
  virtual void on_batch_begin(Learner&) {}
  virtual void on_loss_begin(Learner&) {}
  virtual void on_backward_begin(Learner&) {}
  /// From here to on_step `learn.gradients()` are the true ones: fp32, unscaled
  /// and averaged over ranks. Comes after each backward, also of a batch that
  /// only accumulates.
  virtual void on_backward_end(Learner&) {}
  /// The last word before the optimizer. on_step and on_step_end come when
  /// weights may move: not for a batch that only accumulates, nor once
  /// `skip_step` is set.
  virtual void on_step(Learner&) {}
  virtual void on_step_end(Learner&) {}
  virtual void on_batch_end(Learner&) {}
  virtual void on_epoch_end(Learner&) {}
  /// Runs after an exception too.
  virtual void on_train_end(Learner&) {}
  /// Around each pass without training: validation of an epoch, `validate`,
  /// `get_preds`, `predict`. The end runs after an exception too.
  virtual void on_eval_begin(Learner&) {}
  virtual void on_eval_end(Learner&) {}
  /// request_stop ends the fit: the step is complete, the epoch is not.
  virtual void on_interrupt(Learner&) {}
  /// Weights or optimizer state were replaced from outside training: by load,
  /// load_state_dict, resume, or when a trial is undone.
  virtual void on_load(Learner&) {}
  /// An exception ends the fit; may throw one that says more.
  virtual void on_exception(Learner&, const std::exception&) {}

  /// Before the Learner takes this callback in; `learn.callbacks()` are those
  /// that are there. Throws when it cannot work beside one of them. While a fit
  /// runs on_train_begin follows at once, and within an epoch on_epoch_begin.
  virtual void on_add(Learner&) {}
  /// The Learner has removed this callback; if this throws, it puts it back.
  /// While a fit runs on_train_end follows, with `state().is_removal`.
  virtual void on_remove(Learner&) {}

  /// What a bit-exact resume needs of this callback.
  virtual StateDict state_dict() const { return StateDict(); }
  /// Puts back what `state_dict` gave; an empty one too, if it was empty then
  /// and is not now: at the end of a trial, or on resume.
  virtual void load_state_dict(const StateDict&) {}

  /// For loggers, when a checkpoint is made: flushes the log and returns its
  /// position, so that a resumed run continues it without gaps or repeats; see
  /// take_resumed_log of learner/checkpoint/resume.h. Unlike `state_dict` it is
  /// not part of the training: a resumed run may have other loggers.
  virtual StateDict log_state(Learner&) { return StateDict(); }

  virtual CallbackRole role() const { return CallbackRole::trains; }

  /// Narrows the events at which the class acts to those at which this object
  /// does; asked when the callback is added.
  virtual bool acts_at(Event) const { return true; }

  /// True if from on_loss_begin to on_step_end the callback launches the same
  /// kernels every step and never synchronizes with the host: a CUDA graph then
  /// replays them without a call. See learner/cuda_graph/step_graph.h.
  virtual bool can_be_replayed() const { return false; }

  /// Callbacks run in ascending order; equal ones as they were added.
  virtual int order() const { return 0; }

  /// What `show_training_loop` calls it: the name of its class.
  virtual std::string name() const;

  /// The options that this callback was created with, for reports; none by
  /// default.
  virtual OptionValues option_values() const { return {}; }
};

/// A shared callback that remembers at which events its class acts. A handle
/// made from a pointer to the base class acts at all of them.
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

// `&C::on_step` has Callback's type only where no class between C and Callback
// overrides it; where it cannot be named (a private override), C acts there.
template <class C>
EventSet CallbackHandle::overridden_events() {
  using Base = void (Callback::*)(Learner&);
  EventSet events;
// A macro, because a member can only be looked for by its name.
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

/// A callback for `Learner::add`.
template <class C, class... A>
CallbackHandle make_callback(A&&... arguments) {
  static_assert(
      std::is_base_of_v<Callback, C>,
      "[Learner::add] this is no callback; derive it from tern::Callback");
  static_assert(
      std::is_constructible_v<C, A...>,
      "[Learner::add] the callback takes other arguments; its options stand in "
      "braces, by name: learn.add<C>({.field = value})");
  if constexpr (std::is_constructible_v<C, A...>) {
    return std::make_shared<C>(std::forward<A>(arguments)...);
  }
}

/// Where the callbacks of Tern itself stand. A callback that rewrites gradients
/// belongs after `kMixedPrecision`, where they can be had unscaled.
namespace callback_order {
constexpr int kFirst = -1000;
constexpr int kLoaders = -30;  // changes what is trained on
constexpr int kScheduler = -20;
constexpr int kRecorder = -10;
constexpr int kTerminate = -9;
constexpr int kGradientPenalty = 4;
constexpr int kGradientAccumulation = 5;
constexpr int kMixedPrecision = 10;
constexpr int kGradientClip = 20;
constexpr int kAverages = 30;  // of the weights that a step has made
constexpr int kProgress = 60;
constexpr int kLogger = 61;
constexpr int kSaveModel = 70;
constexpr int kPlateau = 71;
constexpr int kEarlyStopping = 72;
constexpr int kLast = 1000;
/// A checkpoint holds what all others have decided.
constexpr int kSaveCheckpoint = kLast + 1;
}  // namespace callback_order

}  // namespace tern
