#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern {

class Learner;

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
  virtual void on_backward_end(Learner&) {}
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

  /// Before the Learner takes this callback in; `learn.callbacks()` are those
  /// that are there. Throws when it cannot work beside one of them.
  virtual void on_add(const Learner&) {}

  /// What a bit-exact resume needs of this callback.
  virtual StateDict state_dict() const { return StateDict(); }
  virtual void load_state_dict(const StateDict&) {}

  /// For logs, when a checkpoint is made: writes what they still hold in memory
  /// and says where the file ends, for `take_resumed_log` of learner/resume.h.
  /// Unlike `state_dict`, it is no part of the training: a resumed one may have
  /// other loggers, and a checkpoint without it is as good.
  virtual StateDict log_state(Learner&) { return StateDict(); }

  /// Whether it is there to write files, which one process of several does: it
  /// then gets no events in the others.
  virtual bool writes_files() const { return false; }

  /// Whether what it does from on_loss_begin to on_step_end asks the device for
  /// the same work in each step, and nothing of the host: a CUDA graph then
  /// replays it with the step, without a call. See learner/step_graph.h.
  virtual bool can_be_replayed() const { return false; }

  /// Callbacks run in ascending order; equal ones as they were added.
  virtual int order() const { return 0; }

  /// What `show_training_loop` calls it: the name of its class.
  virtual std::string name() const;
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;

/// Where the callbacks of Tern itself stand. A callback that rewrites gradients
/// belongs after `kMixedPrecision`, where they can be had unscaled.
namespace callback_order {
constexpr int kFirst = -1000;
constexpr int kLoaders = -30;  // changes what is trained on
constexpr int kScheduler = -20;
constexpr int kEpochValues = -15;  // adds to what the Recorder keeps
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
constexpr int kSaveCheckpoint = 100;
constexpr int kLast = 1000;
}  // namespace callback_order

}  // namespace tern
