#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/sampler.h"
#include "tern/learner/communicator.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/learner.h"
#include "tern/learner/precision_policy.h"
#include "tern/learner/predictions.h"
#include "tern/learner/step_window.h"

/// The internal state of a Learner, for Tern's own folders. Each part names the
/// file that owns it. Private to Tern; programs use the Learner's methods.
namespace tern {

class Recorder;

/// Where in a fit a checkpoint is saved.
enum class Place { outside_epoch, in_epoch, at_epoch_end };

/// The layer group of one of the optimizer's parameter groups, and whether its
/// parameters are exempt from weight decay.
struct ParamGroupKind {
  int64_t layer_group;
  bool spares_decay;
};

/// The parameters by layer group, with their learning rates; owned by
/// learner/optim/layer_groups.cpp.
struct LayerGroups {
  std::vector<std::vector<ModelTensor>> parameters;
  std::vector<double> own_lr;  // one per group; empty: LearnerOptions::lr
  std::vector<ParamGroupKind> param_group_kinds;  // one per parameter group
  // Names of the parameters that `freeze_to` has frozen. Other parameters that
  // require no gradient were frozen by the program and stay frozen.
  std::set<std::string> frozen;
  // The parameters have changed, and the optimizer does not have the new
  // parameters yet.
  bool have_changed = false;
  // The optimizer's constructor creates state that its steps need, as in
  // Adagrad.
  bool has_initial_state = false;

  int64_t size() const { return std::ssize(parameters); }
};

/// The callbacks and what the loop needs to call them; events.cpp.
struct CallbackList {
  Callbacks all;  // in the order in which they run
  const Callback* running = nullptr;
  std::optional<Event> event;  // the event that `running` handles
  // Removed while a callback runs; kept alive until that callback has returned.
  Callbacks removed;
  // The callbacks that have received on_train_begin of the running fit, and
  // on_epoch_begin of the current epoch. A callback that is added later
  // receives both at once. Unset: no fit or epoch is running.
  std::optional<std::set<const Callback*>> begun_fit, begun_epoch;
  // The callbacks that were passed to the running fit.
  std::set<const Callback*> extras;
  // For resuming, which requires the same callbacks as in the original program.
  // Callbacks that were removed during a fit are removed again;
  // `removed_in_fits` has their names at the beginning of the fit, by the fit's
  // number. Callbacks that were added during a fit must exist.
  std::vector<std::pair<std::string, std::weak_ptr<Callback>>> at_fit_begin;
  std::map<int64_t, std::vector<std::string>> removed_in_fits;
  std::set<const Callback*> added_in_fits;
  // Seconds spent in each callback, while a Profiler measures them.
  std::map<const Callback*, double>* seconds = nullptr;
};

/// The training step in progress; step.cpp.
struct CurrentStep {
  Tensors host_targets;  // of this batch, before their transfer to the device
  std::vector<int64_t> sample_indices;  // `Batch::indices` of this batch
  CopyStream copy_stream;
  StepWindow window;  // the accumulation window
  // Number of samples in this training batch, on this rank and over all ranks.
  // Set only if each rank has separate data.
  ShardedSampler::RealSamples samples_of_ranks = {};
  double loss_count = 0;       // weight of this batch's loss, `Loss::count`
  bool has_gradients = false;  // between backward and the optimizer's step
  bool is_running = false;     // from the batch's arrival until on_batch_end
  // The optimizer steps after on_batch_end of the window's last batch, because
  // the data ended unexpectedly.
  bool follows_batch = false;
  // Scaled gradients that are detached from the parameters of `groups`, in
  // their order, while callbacks run. Empty: the gradients are attached to the
  // parameters.
  Tensors detached_gradients;
  std::shared_ptr<StepRunner> runner;  // null: loop::train_step
  // The loss of one of MultiOptimizer's optimizers, while that optimizer steps.
  std::function<torch::Tensor(const Batch&)> part_loss;
  bool is_parallel = false;  // each batch is computed on several devices
  // The first forward and backward passes of the running fit were checked for
  // new parameters and missing gradients.
  bool knows_parameters = false;
};

/// The position in the training run, over all fits; fit.cpp and
/// learner/checkpoint/.
struct TrainingPosition {
  int64_t epochs_begun = 0;  // over all fits; determines the shuffle
  int64_t fits_done = 0;
  int64_t first_batch = 0;       // of an epoch that is resumed in the middle
  int64_t batches_done = 0;      // of this epoch
  bool data_have_ended = false;  // in the running fit
  Place place = Place::outside_epoch;
  std::map<std::string, std::string> fit_settings;
  // Which parameters were trainable when the running or the last fit began, as
  // returned by `loop::trained_flags`.
  torch::Tensor trained_at_begin;
  std::vector<double> own_rates;  // learning rates passed to the running fit
  bool resumes_epoch = false;     // this epoch continues from a checkpoint
  std::string caller = "fit";     // caller of `fit`, such as "fit_one_cycle"
  std::string call;               // "fit_one_cycle(5, 0.01)"
  // The training dataset and its fingerprint, which covers the data of all
  // ranks if each rank has separate data. Computed on demand, on all ranks.
  std::pair<std::shared_ptr<const Dataset>, std::string> fingerprint;
  std::string run_id;  // identifies this run, also after resuming
  // Completed fits and steps when the last checkpoint was captured.
  std::optional<std::pair<int64_t, int64_t>> last_checkpoint;
  std::unique_ptr<Continuation> continuation;
  // log_state of the callbacks, until the first resumed fit ends.
  std::optional<StateDict> resumed_logs;
  // Names under which a callback saves models but has not saved any in its fit,
  // with the reason. The reason is empty before the fit.
  std::map<std::string, std::string> unsaved_models;
};

/// The weighted sum of the values logged under one name during an evaluation.
struct LoggedSum {
  std::string name;
  torch::Tensor sum;  // 0-dim kDouble, sum of value * samples
  double samples = 0;
};

/// Distinguishes the loop's own evaluations from evaluations that a program or
/// a callback starts.
struct PassOptions {
  /// All ranks evaluate together, each on its shard of the data.
  bool is_common = false;
  /// A stop request may cut the pass short; a resumed run then repeats it.
  bool can_be_cut = false;
  /// For a pass of all ranks: the number of batches that every rank has. After
  /// each of these batches the ranks agree on whether a stop ends the pass.
  int64_t common_batches = 0;
};

/// Evaluations in progress; evaluate.cpp.
struct Evaluation {
  int64_t depth = 0;  // evaluations may be nested
  PassOptions pass;   // of the innermost evaluation
  bool was_cut = false;
  Validation before_epoch;  // results of the epoch before the current one
  // Evaluations started by callbacks since the last training batch. This number
  // and the number of steps determine the random numbers of the next
  // evaluation.
  int64_t passes = 0;
  std::optional<int64_t> augmented_pass;  // number of tta's current pass
  // Values logged in the current evaluation, and in the last one.
  std::vector<LoggedSum> logged, logged_in_last;
};

/// The thread that trains, and requests to stop it; step.cpp.
struct StopRequest {
  std::atomic<std::thread::id> fit_thread;   // no thread while no fit runs
  std::atomic<bool> requested = false;       // known to all ranks
  std::atomic<bool> requested_here = false;  // on this rank only
};

/// The processes that train together; synchronize_ranks.cpp.
struct Ranks {
  std::shared_ptr<Communicator> communicator;  // null: a single process
  bool shard_data = true;  // false: each rank trains on all of its data
  std::shared_ptr<TrainingShard> training_shard;
  // Loaders for this rank's shard of the data, by sampler and by whether they
  // are for training.
  std::map<std::pair<const Sampler*, bool>, std::shared_ptr<DataLoader>> shards;
};

/// Whether the user was warned about outputs that are shown as class
/// probabilities although no activation is declared for them; predictions.cpp.
enum class RawOutputs { unseen, are_fine, warned_of };

struct LearnerParts {
  LearnerParts(DataBunch data, Model model, LearnerOptions options);
  ~LearnerParts();

  /// The Learner that owns these parts, passed to callbacks.
  Learner* self = nullptr;

  DataBunch data;
  Model model;
  LearnerOptions options;
  TrainState state;
  LayerGroups groups;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  // The master weights of a 16-bit model; null: the model's parameters.
  std::shared_ptr<SteppedWeights> stepped_weights;
  PrecisionPolicy* precision = nullptr;  // one of the callbacks; null: fp32
  std::shared_ptr<Recorder> recorder;

  CallbackList callbacks;
  CurrentStep step;
  TrainingPosition position;
  Evaluation evaluation;
  RawOutputs raw_outputs = RawOutputs::unseen;
  StopRequest stop;
  Ranks ranks;

  /// Records a call between fits, such as "freeze()", for the report.
  void record_call(const std::string& call);
  /// Returns one learning rate per layer group.
  std::vector<double> resolve(const LearningRates& lr) const;
};

LearnerParts& parts_of(const Learner& learner);

}  // namespace tern
