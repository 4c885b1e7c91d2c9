#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/extension.h"
#include "tern/learner/learner.h"
#include "tern/learner/step_window.h"

namespace tern {

class Recorder;

/// Where in a fit a checkpoint falls.
enum class Place { outside_epoch, in_epoch, at_epoch_end };

/// Which layer group one of the optimizer's parameter groups is of.
struct ParamGroupKind {
  int64_t layer_group;
  bool spares_decay;
};

/// What was logged under a name in a pass without training.
struct LoggedSum {
  std::string name;
  torch::Tensor sum;  // 0-dim kDouble, of values times samples
  double samples = 0;
};

/// What a Learner is made of, for the folders that build on the core; each
/// field has its reader and writer in the file that the comment names. Private
/// to Tern: outside programs have the Learner's methods.
struct LearnerParts {
  /// The Learner that these are parts of, which callbacks are given.
  Learner* self = nullptr;

  // ---- What is trained, and on what ----

  DataBunch data;
  Model model;
  LearnerOptions options;
  TrainState state;
  std::vector<std::vector<ModelTensor>> groups;  // parameters by layer group
  std::vector<double> own_lr;  // of each layer group; empty: options.lr
  std::unique_ptr<torch::optim::Optimizer> optimizer;  // layer_groups.cpp
  std::vector<ParamGroupKind> param_group_kinds;       // of its groups
  // Of a 16-bit model its fp32 master weights; null: the model's parameters.
  std::shared_ptr<SteppedWeights> stepped_weights;

  // ---- Who is told; events.cpp ----

  std::shared_ptr<Recorder> recorder;
  Callbacks callbacks;  // in the order in which they run
  const Callback* running_callback = nullptr;
  std::map<const Callback*, double>* callback_seconds = nullptr;  // Profiler's
  Callbacks removed_callbacks;  // while callbacks run

  // ---- The step that is being made; step.cpp ----

  Tensors host_targets;  // of this batch, before the transfer
  CopyStream copy_stream;
  StepWindow window;
  double weight = 1;                     // of this batch's loss in its step
  PrecisionPolicy* precision = nullptr;  // one of the callbacks; null: fp32
  bool has_gradients = false;            // between backward and the step
  Tensors gradients_aside;  // with a loss scale, of each parameter in `groups`
  std::shared_ptr<StepRunner> step_runner;  // null: loop::train_step
  // While one of several optimizers steps, of MultiOptimizer: its loss.
  std::function<torch::Tensor(const Batch&)> part_loss;
  bool is_parallel = false;  // several devices compute each batch

  // ---- Where the training is; fit.cpp, checkpoints ----

  int64_t epochs_begun = 0;  // over all fits; keys the shuffle
  int64_t fits_done = 0;
  int64_t first_batch = 0;   // of the epoch that a checkpoint was made in
  int64_t batches_done = 0;  // of this epoch
  Place place = Place::outside_epoch;
  std::map<std::string, std::string> fit_settings;
  std::string caller = "fit";  // of `fit`: "fit_one_cycle"
  std::string call;            // "fit_one_cycle(5, 0.01)"; scopes.cpp
  // Of the training data; made when a checkpoint is captured.
  std::pair<std::shared_ptr<const Dataset>, std::string> fingerprint;
  std::string run_id;  // names this training, over all continuations
  std::unique_ptr<Continuation> continuation;
  std::optional<StateDict> resumed_logs;  // until a resumed fit ends

  // ---- Passes without training; evaluate.cpp ----

  int64_t evaluations = 0;                // going on, one within the other
  std::optional<int64_t> augmented_pass;  // of tta
  bool begins_common_evaluation = false;
  // Of the pass that goes on, and of the last one that has ended.
  std::vector<LoggedSum> logged_in_pass, logged_in_last_pass;

  // ---- Who runs it, and stops ----

  std::atomic<std::thread::id> fit_thread;  // none unless fit runs
  std::atomic<bool> stop_requested = false;
  std::atomic<bool> stop_wanted = false;  // on this rank, before all agree

  // ---- Several processes; agreement.cpp ----

  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<TrainingShard> training_shard;
  // By what is divided, which a shard keeps, and for training or not.
  std::map<std::pair<const Sampler*, bool>, std::shared_ptr<DataLoader>> shards;

  int64_t layer_groups() const { return static_cast<int64_t>(groups.size()); }
  /// For the report's list: of a call between fits, as "freeze()".
  void note_call(const std::string& call);
  /// One for each layer group.
  std::vector<double> resolve(const LearningRates& lr) const;

  LearnerParts(DataBunch data, Model model, LearnerOptions options);
  ~LearnerParts();
};

}  // namespace tern
