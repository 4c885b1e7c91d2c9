#pragma once

#include <cstdint>
#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/state_dict.h"

/// The interfaces through which the core uses other folders without including
/// them. Each folder implements an interface and sets it in LearnerParts.
/// Private to Tern.
namespace tern {

class Learner;

/// The tensors that the optimizer updates instead of the model's parameters;
/// implemented by MasterWeights of learner/amp/.
class SteppedWeights {
 public:
  virtual ~SteppedWeights() = default;
  /// Returns the tensor that the optimizer updates for this parameter.
  virtual torch::Tensor of(const torch::Tensor& parameter) const = 0;
  virtual void zero_grad() = 0;
};

/// An optimizer that keeps copies of the parameters in its state and later sets
/// the parameters from them, such as Lookahead with its slow weights. If
/// weights are replaced without the optimizer's state, for example by
/// load_state_dict, Swa or Ema, call `weights_replaced`.
class CopiesWeights {
 public:
  virtual ~CopiesWeights() = default;
  /// Returns the existing copies. Writing into them changes the optimizer's
  /// state.
  virtual Tensors weight_copies() = 0;
  /// Sets the copies to the current parameters.
  virtual void weights_replaced() = 0;
};

/// Runs training steps instead of `loop::train_step`; implemented by StepGraph
/// of learner/cuda_graph/ and MultiOptimizer of callbacks/.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Called at the beginning and at the end of a fit.
  virtual void begin(Learner& learn) = 0;
  virtual void end(Learner& learn) = 0;
  /// Runs one step of the running fit on the batch in `learn.state()`.
  virtual void step(Learner& learn) = 0;
  /// Called when weights, callbacks or frozen groups have changed since the
  /// last step.
  virtual void forget() = 0;
  /// Calls `change`, which freezes or unfreezes parameters, possibly in the
  /// middle of a step.
  virtual void change_frozen(c10::function_ref<void()> change) { change(); }
};

/// The part of a resumed checkpoint that fits have not used yet; implemented by
/// ResumePlan of learner/checkpoint/.
class Continuation {
 public:
  virtual ~Continuation() = default;
  /// Returns the checkpoint's name, which is the same on all ranks that found
  /// the same checkpoint.
  virtual std::string checkpoint_name() const = 0;
  /// True if this fit was complete when the checkpoint was written.
  virtual bool
  is_done(Learner& learn, int64_t epochs, const LearningRates& lr) = 0;
  /// Restores the Learner's state from the checkpoint.
  /// \param in_epoch  False for the call after on_train_begin. True for the
  ///                  call after on_epoch_begin, if the checkpoint was saved in
  ///                  the middle of an epoch.
  virtual void restore(Learner& learn, bool in_epoch) = 0;
};

/// Optimizer state that is divided among ranks; implemented by OptimizerShard
/// of learner/distributed/. All ranks must make each call.
class TrainingShard {
 public:
  virtual ~TrainingShard() = default;
  /// Returns the whole optimizer state on rank 0, and `mine` on the other
  /// ranks.
  /// \param mine  This rank's part.
  virtual StateDict gather_state(const StateDict& mine) = 0;
  /// True if this rank has released the master weights that other ranks update.
  virtual bool has_released_masters() const = 0;
  virtual void gather_masters() = 0;
  virtual void release_masters() = 0;
};

}  // namespace tern
