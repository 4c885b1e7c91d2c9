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

/// The internal state of a Learner, which Tern's own folders work on; each part
/// names the file that owns it. Private to Tern: outside programs have the
/// Learner's methods.
namespace tern {

class Recorder;

/// Where in a fit a checkpoint falls.
enum class Place { outside_epoch, in_epoch, at_epoch_end };

/// The layer group of one of the optimizer's parameter groups, and whether its
/// parameters have no weight decay.
struct ParamGroupKind {
  int64_t layer_group;
  bool spares_decay;
};

/// The parameters by layer group, with their learning rates; layer_groups.cpp
/// of learner/optim/.
struct LayerGroups {
  std::vector<std::vector<ModelTensor>> parameters;
  std::vector<double> own_lr;  // one for each group; empty: LearnerOptions::lr
  std::vector<ParamGroupKind> param_group_kinds;  // of the optimizer's groups
  // Names of the parameters that `freeze_to` has frozen. The others that require
  // no gradient were frozen by the program, and stay so.
  std::set<std::string> frozen;
  // The optimizer has not been given the parameters yet, which are others.
  bool have_changed = false;
  // The optimizer's constructor makes state that its steps need, as Adagrad's.
  bool has_initial_state = false;

  int64_t size() const { return std::ssize(parameters); }
};

/// The callbacks and what the loop needs to call them; events.cpp.
struct CallbackList {
  Callbacks all;  // in the order in which they run
  const Callback* running = nullptr;
  std::optional<Event> event;  // that it has been called for
  // Removed while a callback runs; they live until it has returned.
  Callbacks removed;
  // Of the running fit: who has had on_train_begin, and on_epoch_begin of this
  // epoch. What is added later gets both at once. Unset: no fit, no epoch.
  std::optional<std::set<const Callback*>> begun_fit, begun_epoch;
  // Those that the running fit was called with.
  std::set<const Callback*> extras;
  // A resumed program has to come to the same callbacks. Those that were removed
  // in a fit are removed again: by the fit's number, the names that they had
  // when it began. Those that were added in a fit have to be there.
  std::vector<std::pair<std::string, std::weak_ptr<Callback>>> at_fit_begin;
  std::map<int64_t, std::vector<std::string>> removed_in_fits;  // completed
  std::set<const Callback*> added_in_fits;
  // Seconds spent in each callback, while a Profiler measures them.
  std::map<const Callback*, double>* seconds = nullptr;
};

/// The training step in progress; step.cpp.
struct CurrentStep {
  Tensors host_targets;  // of this batch, before the transfer to the device
  std::vector<int64_t>
      sample_indices;  // as the loader gave them, `Batch::indices`
  CopyStream copy_stream;
  StepWindow window;  // batches whose gradients make one step
  // Where each rank has data of its own.
  ShardedSampler::RealSamples samples_of_ranks = {};
  double loss_count = 0;       // how much this batch's loss counts
  bool has_gradients = false;  // between backward and the optimizer's step
  bool is_running = false;     // from the batch's arrival to on_batch_end
  // Gradients with a loss scale, taken from the parameters of `groups` in their
  // order while callbacks run; empty: they are at the parameters.
  Tensors detached_gradients;
  std::shared_ptr<StepRunner> runner;  // null: loop::train_step
  // While one of MultiOptimizer's optimizers steps: its loss.
  std::function<torch::Tensor(const Batch&)> part_loss;
  bool is_parallel = false;  // several devices compute each batch
  // The running fit has seen which parameters there are, and have gradients.
  bool knows_parameters = false;
};

/// The position in the training, over all fits; fit.cpp and
/// learner/checkpoint/.
struct TrainingPosition {
  int64_t epochs_begun = 0;  // over all fits; the shuffle depends on it
  int64_t fits_done = 0;
  int64_t first_batch = 0;       // of the epoch that a checkpoint was made in
  int64_t batches_done = 0;      // of this epoch
  bool data_have_ended = false;  // in the running fit
  Place place = Place::outside_epoch;
  std::map<std::string, std::string> fit_settings;
  // Which parameters were trained when the running fit began, or the last one;
  // as `loop::trained_flags` gives it.
  torch::Tensor trained_at_begin;
  std::vector<double> own_rates;  // that the running fit was called with
  bool resumes_epoch = false;  // this epoch goes on where a checkpoint was made
  std::string caller = "fit";  // of `fit`, such as "fit_one_cycle"
  std::string call;            // "fit_one_cycle(5, 0.01)"
  // Of the training data; where each rank has its own, of all of them. Computed
  // when it is needed, on all ranks.
  std::pair<std::shared_ptr<const Dataset>, std::string> fingerprint;
  std::string run_id;  // names this training, over all continuations
  // Fits done and steps when the last checkpoint was captured.
  std::optional<std::pair<int64_t, int64_t>> last_checkpoint;
  std::unique_ptr<Continuation> continuation;
  std::optional<StateDict> resumed_logs;  // until a resumed fit ends
  // Names that a callback saves models under and has not in its fit, with the
  // reason; empty before a fit.
  std::map<std::string, std::string> unsaved_models;
};

/// The weighted sum of what was logged under a name during an evaluation.
struct LoggedSum {
  std::string name;
  torch::Tensor sum;  // 0-dim kDouble, of values times samples
  double samples = 0;
};

/// What distinguishes the loop's own evaluations from those that a program or a
/// callback asks for.
struct PassOptions {
  /// All ranks evaluate together, each its share of the data.
  bool is_common = false;
  /// A stop request ends the pass, which a resumed training makes again.
  bool can_be_cut = false;
  /// Of a pass of all ranks: the batches that each of them has. After each the
  /// ranks agree whether a stop ends the pass.
  int64_t common_batches = 0;
};

/// Evaluations in progress; evaluate.cpp.
struct Evaluation {
  int64_t depth = 0;  // one may run within another
  PassOptions pass;   // the innermost
  bool was_cut = false;
  Validation before_epoch;  // results of the epoch before the current one
  // Passes that callbacks have made since the last training batch; with the
  // number of steps it tells what random numbers the next one gets.
  int64_t passes = 0;
  std::optional<int64_t> augmented_pass;  // of tta
  // What was logged in the current evaluation, and in the last one.
  std::vector<LoggedSum> logged, logged_in_last;
};

/// The thread that trains, and requests to stop it; step.cpp.
struct StopRequest {
  std::atomic<std::thread::id> fit_thread;   // none unless fit runs
  std::atomic<bool> requested = false;       // all ranks know
  std::atomic<bool> requested_here = false;  // on this rank alone
};

/// The processes that train together; synchronize_ranks.cpp.
struct Ranks {
  std::shared_ptr<Communicator> communicator;  // null: this process alone
  bool shard_data = true;  // false: each rank trains on all of its own
  std::shared_ptr<TrainingShard> training_shard;
  // Loaders of this rank's share, by sampler and for training or not.
  std::map<std::pair<const Sampler*, bool>, std::shared_ptr<DataLoader>> shards;
};

/// What is known of outputs that are shown as probabilities of classes though
/// nothing says what makes them so; predictions.cpp.
enum class RawOutputs { unseen, are_fine, warned_of };

struct LearnerParts {
  LearnerParts(DataBunch data, Model model, LearnerOptions options);
  ~LearnerParts();

  /// The Learner that these are parts of, which callbacks are given.
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

  /// Adds a call between fits, such as "freeze()", to the report's list.
  void record_call(const std::string& call);
  /// One learning rate for each layer group.
  std::vector<double> resolve(const LearningRates& lr) const;
};

LearnerParts& parts_of(const Learner& learner);

}  // namespace tern
