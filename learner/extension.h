#pragma once

#include <cstdint>
#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/state_dict.h"

/// What the folders beside the core put into a Learner; the core knows them by
/// these interfaces alone. Private to Tern but for StepResult, Communicator and
/// `communicator`.
namespace tern {

class Learner;

/// What became of an optimizer's step. unknown: the optimizer decides on the
/// device, and the flag has not been read.
enum class StepResult { stepped, skipped, unknown };

/// How a step is made in another precision than plain fp32. The loop asks the
/// callback that implements it: LossScaling.
class PrecisionPolicy {
 public:
  virtual ~PrecisionPolicy() = default;
  /// Gives the optimizer's parameters fp32 gradients without the loss scale. A
  /// second call before the step does nothing.
  virtual void unscale(Learner& learn) = 0;
  /// The step is not made: forgets what `unscale` noted. Gradients that stay,
  /// for the next batch to add to, get their loss scale back.
  virtual void abandon(Learner& learn, bool keeps_gradients) = 0;
  virtual StepResult step(Learner& learn) = 0;
  /// Calls `compute`, a forward pass, as it runs in this precision: under
  /// autocast or as it stands.
  virtual void forward(Learner& learn, c10::function_ref<void()> compute) = 0;
  /// What multiplies the loss; NaN if nothing does. May wait for the device.
  virtual double loss_scale() const = 0;
  /// The loss scale and the steps skipped in a row, [2] kFloat on the device;
  /// undefined before the first backward and without a loss scale. Never waits.
  virtual torch::Tensor loss_scale_record() const = 0;
  /// Throws if a model in this precision cannot compute on several devices.
  virtual void check_parallel() const {}
  /// "fp16 model, fp32 masters", for messages and reports.
  virtual std::string precision_text() const = 0;
};

/// The tensors that the optimizer steps in place of the model's parameters:
/// MasterWeights of precision/.
class SteppedWeights {
 public:
  virtual ~SteppedWeights() = default;
  /// The tensor that the optimizer steps for this parameter.
  virtual torch::Tensor of(const torch::Tensor& parameter) const = 0;
  virtual void zero_grad() = 0;
};

/// Runs training steps in place of `loop::train_step`: StepGraph of graph/.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// At the beginning and at the end of a fit.
  virtual void begin(Learner& learn) = 0;
  virtual void end(Learner& learn) = 0;
  /// One step of the running fit, on the batch in `learn.state()`.
  virtual void step(Learner& learn) = 0;
  /// Weights, callbacks or frozen groups are others than in the last step.
  virtual void forget() = 0;
};

/// What `Learner::resume` has read and the coming fits have not used yet:
/// ResumePlan of checkpoint/.
class Continuation {
 public:
  virtual ~Continuation() = default;
  /// Names the checkpoint, the same on all ranks that found the same one.
  virtual std::string checkpoint_name() const = 0;
  /// Whether this fit was complete when the checkpoint was written.
  virtual bool
  was_done_before(Learner& learn, int64_t epochs, const LearningRates& lr) = 0;
  /// Puts the Learner where the checkpoint was made.
  /// \param in_epoch  Called after on_epoch_begin, the second time for a
  ///                  checkpoint that was made in the middle of an epoch.
  virtual void put_back(Learner& learn, bool in_epoch) = 0;
};

/// The processes that train together, as the core sees them: ProcessGroup of
/// learner/distributed/, or this process alone. Every call but `rank`,
/// `world_size` and `is_main_process` is made by all ranks in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Replaces the tensor by the sum over ranks, in place, with the same bits on
  /// all of them. A CPU tensor never touches the device.
  virtual void all_reduce(const torch::Tensor& tensor) = 0;
  /// All ranks' tensors become those of rank `root`, in place.
  virtual void broadcast(const Tensors& tensors, int64_t root = 0) = 0;
  /// Throws, on all ranks, unless all gave the same value; says who has what.
  virtual void check_equal(
      const std::string& what,
      const std::string& value) = 0;

  /// True for the process that prints and writes files: rank 0.
  bool is_main_process() const { return rank() == 0; }
  /// The mean over all ranks of a number that each has; for callbacks that
  /// decide by a number of their own.
  double mean(double value);
};

/// The processes that train together with this Learner's, or this one alone.
Communicator& communicator(const Learner& learn);

/// How the state that ranks have divided among them comes together:
/// OptimizerShard of distributed/. All ranks make each call.
class TrainingShard {
 public:
  virtual ~TrainingShard() = default;
  /// The optimizer's state of all ranks, of which this one has `mine`: on rank
  /// 0; elsewhere `mine`.
  virtual StateDict gather_state(const StateDict& mine) = 0;
  /// Whether this rank has given back the master weights that others step.
  virtual bool has_released_masters() const = 0;
  virtual void gather_masters() = 0;
  virtual void release_masters() = 0;
};

}  // namespace tern
