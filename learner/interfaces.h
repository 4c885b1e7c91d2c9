#pragma once

#include <cstdint>
#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/state_dict.h"

/// What the core asks of the folders beside it, which it does not include: each
/// folder implements one of these interfaces and gives it to LearnerParts.
/// Private to Tern.
namespace tern {

class Learner;

/// The tensors that the optimizer steps in place of the model's parameters:
/// MasterWeights of learner/amp/.
class SteppedWeights {
 public:
  virtual ~SteppedWeights() = default;
  /// Returns the tensor that the optimizer steps for this parameter.
  virtual torch::Tensor of(const torch::Tensor& parameter) const = 0;
  virtual void zero_grad() = 0;
};

/// An optimizer whose state holds copies of the parameters, as Lookahead's slow
/// weights, to which a step leads back. A Learner calls it where weights are
/// replaced without such a state: by load_state_dict, Swa and Ema for example.
class CopiesWeights {
 public:
  virtual ~CopiesWeights() = default;
  /// The copies that exist now; what is written into them counts.
  virtual Tensors weight_copies() = 0;
  /// The copies become what the parameters are now.
  virtual void weights_replaced() = 0;
};

/// Runs training steps in place of `loop::train_step`: StepGraph of
/// learner/cuda_graph/, MultiOptimizer of callbacks/.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// At the beginning and at the end of a fit.
  virtual void begin(Learner& learn) = 0;
  virtual void end(Learner& learn) = 0;
  /// Makes one step of the running fit, on the batch in `learn.state()`.
  virtual void step(Learner& learn) = 0;
  /// Weights, callbacks or frozen groups have changed since the last step.
  virtual void forget() = 0;
  /// Calls `change`, which sets what requires a gradient, perhaps in the middle
  /// of a step.
  virtual void change_frozen(c10::function_ref<void()> change) { change(); }
};

/// What `Learner::resume` has read and the coming fits have not used yet:
/// ResumePlan of learner/checkpoint/.
class Continuation {
 public:
  virtual ~Continuation() = default;
  /// Returns the checkpoint's name, the same on all ranks that found the same
  /// one.
  virtual std::string checkpoint_name() const = 0;
  /// Whether this fit was complete when the checkpoint was written.
  virtual bool
  is_done(Learner& learn, int64_t epochs, const LearningRates& lr) = 0;
  /// Restores the Learner's state at the checkpoint.
  /// \param in_epoch  Called after on_epoch_begin, the second time for a
  ///                  checkpoint that was made in the middle of an epoch.
  virtual void restore(Learner& learn, bool in_epoch) = 0;
};

/// Optimizer state that is divided among ranks: OptimizerShard of
/// learner/distributed/. All ranks make each call.
class TrainingShard {
 public:
  virtual ~TrainingShard() = default;
  /// Returns the optimizer's state of all ranks, of which this one has `mine`,
  /// on rank 0; elsewhere `mine`.
  virtual StateDict gather_state(const StateDict& mine) = 0;
  /// Whether this rank has released the master weights that others step.
  virtual bool has_released_masters() const = 0;
  virtual void gather_masters() = 0;
  virtual void release_masters() = 0;
};

}  // namespace tern
