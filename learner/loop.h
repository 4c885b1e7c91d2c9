#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/FunctionRef.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/learner_parts.h"

/// The steps of the training loop, which learner/fit.cpp puts in order, and the
/// scopes in which they run. Private to Tern.
namespace tern {

/// Disables autocast during a fit or an evaluation: an AutocastGuard of the
/// program around it would keep 16-bit copies of weights that change.
class NoAutocast {
 public:
  explicit NoAutocast(torch::Device device);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_on_;
};

/// Sends LibTorch's warnings of this thread to a sink while it lives, each text
/// once: those of GradScaler too, which uses LibTorch's way to warn.
class SinkWarnings final : public c10::WarningHandler {
 public:
  explicit SinkWarnings(SinkImpl& sink) : sink_(sink), guard_(this) {}
  void process(const c10::Warning& warning) override {
    if (told_.insert(warning.msg()).second) sink_.warning(warning.msg());
  }

 private:
  SinkImpl& sink_;
  std::set<std::string> told_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

/// One `fit` from its checks to its on_train_end, which runs after an exception
/// too.
class FitScope {
 public:
  FitScope(
      LearnerParts& l,
      int64_t epochs,
      const LearningRates& lr,
      Callbacks extra);
  ~FitScope();
  FitScope(const FitScope&) = delete;

  /// Calls `train`, then every on_train_end, and throws what the first of them
  /// threw.
  void run(c10::function_ref<void()> train);

 private:
  void end();
  std::exception_ptr run_train_end(bool failed);
  void leave();

  LearnerParts& l_;
  Callbacks extra_;
  size_t added_ = 0;  // of them
  std::map<std::string, std::string> settings_before_;
  bool is_open_ = true;
  NoAutocast no_autocast_;
  SinkWarnings warnings_;
};

/// Evaluation: no grad, eval mode, random numbers of its own. All is restored,
/// and so is the training step, or the batch of another evaluation, during which
/// a callback evaluates.
class EvalScope {
 public:
  explicit EvalScope(LearnerParts& l, const PassOptions& pass = {});
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;

  /// The ordinary end. Throws what the first on_eval_end threw.
  void end();

 private:
  struct Step {
    bool training;
    int64_t batch, batches;
    Batch batch_data;
    Tensors outputs, host_targets;
    std::vector<int64_t> sample_indices;
    torch::Tensor loss, loss_grad;
    Loss batch_loss;
    double loss_count = 0;
  };

  void use_own_random_numbers();
  void swap_step();
  std::exception_ptr leave(bool failed);

  LearnerParts& l_;
  bool was_training_;
  PassOptions outer_pass_;
  int64_t passes_;    // before this one
  StateDict random_;  // training's numbers
  std::optional<Step> step_;
  std::vector<LoggedSum> outer_logged_;
  bool is_open_ = true;
  torch::NoGradGuard no_grad_;
  NoAutocast no_autocast_;
  SinkWarnings warnings_;
};

}  // namespace tern

namespace tern::loop {

// ---- fit.cpp ----

void train_epochs(LearnerParts& l);
void train_one_epoch(LearnerParts& l);
/// Forward, backward and the optimizer's step on the batch in
/// `state.batch_data`.
void train_step(LearnerParts& l);
void forward(LearnerParts& l, bool with_loss);
/// Evaluates; `each` is called after every batch.
/// \return whether the pass reached the end of the data: false if a stop cut it.
bool evaluate(
    LearnerParts& l,
    const DataLoader& loader,
    bool with_loss,
    const std::function<void()>& each,
    const PassOptions& pass = {});

// ---- events.cpp ----

/// Whether the callback receives this event, by its role.
bool receives(
    const LearnerParts& l,
    const CallbackHandle& callback,
    Event event);
/// Calls all callbacks. One that was added while the fit runs has had
/// on_train_begin and on_epoch_begin already and does not get them again.
void run(LearnerParts& l, Event event);
/// Gives a callback that was added while the fit runs the on_train_begin, and
/// within an epoch the on_epoch_begin, that it has missed.
void begin_late(LearnerParts& l, const CallbackHandle& callback);
/// Gives a callback that is removed while the fit runs its on_train_end.
void end_early(LearnerParts& l, const CallbackHandle& callback);
/// Callbacks by "callbacks/EarlyStopping 0": the name, and which of that name
/// in the order in which they run.
std::vector<std::pair<std::string, Callback*>> named_callbacks(
    const LearnerParts& l);
/// The same for what callbacks do to the list: those that `fit` was given as
/// arguments are apart, "of the fit/EarlyStopping 0", so that the others have the
/// same names while this fit runs and before it.
std::vector<std::pair<std::string, CallbackHandle>> names_in_fit(
    const LearnerParts& l);
/// Those names of the callbacks that there were when the running fit began and
/// that have been removed since.
std::vector<std::string> removed_in_fit(const LearnerParts& l);
/// Every callback gets this event, whatever the others throw.
/// \return the first error, unless `failed`: there is one already then.
std::exception_ptr run_all(LearnerParts& l, Event event, bool failed);
void run_exception(LearnerParts& l, const std::exception& error);
/// The optimizer's copies of weights, if it has any, become what the weights are
/// now: these were replaced, and not the optimizer's state with them.
void replace_weight_copies(LearnerParts& l);
/// Invalidates recorded graphs and sends on_load: weights or the optimizer's
/// state were replaced from outside the training.
void invalidate_derived_state(LearnerParts& l);

// ---- step.cpp ----

/// Whether a stop was requested before, or a resumed training had completed
/// this fit already.
bool is_fit_skipped(LearnerParts& l, int64_t epochs, const LearningRates& lr);
/// After on_train_begin.
void begin_training(LearnerParts& l);
bool has_next_epoch(const LearnerParts& l);
/// After on_epoch_begin.
void begin_epoch(LearnerParts& l);
DataLoader::Epoch begin_batches(LearnerParts& l);
void end_batches(LearnerParts& l);
DataLoader::Epoch begin_pass(LearnerParts& l, const DataLoader& loader);
/// Before on_epoch_end. False for an epoch that a stop has cut off, and for one
/// that had no batch because the data ended with the epoch before it.
bool completes_epoch(LearnerParts& l);
/// After on_epoch_end.
void end_epoch(LearnerParts& l);

/// Nothing at the end of the data, and when a callback ended the epoch or the
/// fit, or a stop request ends the fit or cuts the evaluation.
std::optional<Batch> next_batch(LearnerParts& l, DataLoader::Epoch& batches);
void start_batch(LearnerParts& l, Batch batch);
/// `train_step`, or what runs in its place.
void run_step(LearnerParts& l);
void end_batch(LearnerParts& l);
void clear_batch(LearnerParts& l);
/// Calls `compute`, a forward pass, in the Learner's precision: after to_amp
/// under autocast.
void in_forward_precision(LearnerParts& l, c10::function_ref<void()> compute);
Tensors run_model(LearnerParts& l, const Tensors& inputs);
/// Sets the loss that suits targets of this type, unless there is one.
void choose_loss(LearnerParts& l, const Tensors& targets);
/// The same before the first batch with a target, by one of the data's, unless
/// their description or class names tell what is learnt.
void choose_loss_by_data(LearnerParts& l);
/// Warns once if the outputs are to be probabilities of classes, and nothing says
/// what makes them so.
/// \param output  Of a batch, as it will be shown; undefined: not known yet.
void warn_of_raw_outputs(LearnerParts& l, const torch::Tensor& output = {});
torch::Tensor compute_loss(LearnerParts& l);
/// How much of the batch its loss counts, by its targets in host memory: a GPU
/// is not waited for, and of targets that are there alone samples count.
double count_of_batch(const LearnerParts& l, const Loss& loss);
/// Multiplies the loss for backward by its weight in an accumulation window and
/// among ranks.
void weight_loss(LearnerParts& l);
/// Detaches the loss, and corrects the gradients of a window that ended early.
void finish_backward(LearnerParts& l);
/// Takes gradients with a loss scale from the parameters while callbacks run,
/// so that nobody reads, clips or logs scaled numbers: `grad()` is unscaled or
/// undefined. Moves tensor handles only. Without a loss scale nothing happens.
void detach_scaled_gradients(LearnerParts& l);
/// Gives them back, for backward to add to and for the optimizer.
void attach_scaled_gradients(LearnerParts& l);
/// Gives the tensors that the optimizer steps unscaled gradients.
void unscale_gradients(LearnerParts& l);
void optimizer_step(LearnerParts& l);
void zero_grad(LearnerParts& l);

// ---- new_parameters.cpp ----

/// Brings layer groups, master weights and optimizer up to date with the model,
/// whose modules may have been added, replaced or left out. What is known of the
/// other parameters stays as it is.
/// \throws c10::ValueError that names the parameters where that cannot be done.
void follow_model(LearnerParts& l);
/// The same after the first forward pass of a fit, which may make layers.
void follow_first_forward(LearnerParts& l);
/// Warns after the first backward pass of a fit of parameters without a
/// gradient.
void look_at_first_gradients(LearnerParts& l);

// ---- learner.cpp ----

/// Sets one value for each layer group. Parameters without weight decay keep
/// none.
void set_hyper_parameter(
    LearnerParts& l,
    HyperParameter hyper,
    const std::vector<double>& values);

// ---- evaluate.cpp ----

/// At the beginning of an epoch; `restore_validation` undoes it for one that was
/// none.
void forget_validation(LearnerParts& l);
void restore_validation(LearnerParts& l);
void validate_after_epoch(LearnerParts& l);
/// Counts the batch whose outputs are there in each metric; a detector's outputs
/// are decoded once for those that take detections.
void update_metrics(LearnerParts& l, std::vector<Metric>& metrics);
/// The loss and every metric over all batches; nothing if a stop cut the pass.
std::optional<Validation>
evaluate_metrics(LearnerParts& l, Split split, const PassOptions& pass);

// ---- scopes.cpp ----

int64_t trained_parameters(const LearnerParts& l);
/// Which parameters require a gradient: [P] kBool, in the model's order.
torch::Tensor trained_flags(const LearnerParts& l);
void set_trained_flags(LearnerParts& l, const torch::Tensor& flags);
/// The fingerprint of the training data; where each rank has its own, of all of
/// them. Called by all ranks.
const std::string& data_fingerprint(LearnerParts& l);
/// Describes the data and the fit, to compare on resume.
std::map<std::string, std::string> data_settings(LearnerParts& l);
std::map<std::string, std::string>
fit_settings(LearnerParts& l, int64_t epochs, const LearningRates& lr);

// ---- synchronize_ranks.cpp ----

/// From now on each epoch trains and validates on this rank's share of the data,
/// or on all of them if each rank has its own.
void set_communicator(
    LearnerParts& l,
    std::shared_ptr<Communicator> communicator,
    bool shard_data);
/// Into how many parts the data are divided.
int64_t data_shards(const LearnerParts& l);
const DataLoader& training_loader(LearnerParts& l);
const DataLoader&
shard_of(LearnerParts& l, const DataLoader& loader, bool equal_batches);
/// Throws unless all ranks resume from the same checkpoint and step.
void check_same_checkpoint(LearnerParts& l);
/// Throws unless all ranks begin at the same position with the same weights.
void check_same_start(LearnerParts& l);
/// Throws, naming parameters, unless all ranks have the same weights.
/// \param when  For the error: "before the first step".
void check_same_weights(LearnerParts& l, const std::string& when);
/// Makes what callbacks decided the same on all ranks: skip and stop flags are
/// set if any rank set them, learning rates are those of rank 0. Nothing happens
/// in a single process.
void sync_decisions(LearnerParts& l);
/// The batches of validation data that every rank has. Called by all ranks.
int64_t common_batches(LearnerParts& l, const DataLoader& whole);
/// Ends the validation on all ranks after the same batch, if one was asked to
/// stop. After the last common batch nobody asks.
void sync_validation_stop(LearnerParts& l, int64_t common_batches);
/// Calls `act` on every rank; if it throws on one, all throw: the others a
/// DataError with its text, or a c10::Error where it was none. For what rank 0
/// writes: no rank goes on before it is written.
void run_on_all_ranks(LearnerParts& l, c10::function_ref<void()> act);
/// The first rank for which it is true; nothing if there is none.
std::optional<int64_t> first_rank_where(LearnerParts& l, bool is_true);
AllReduce all_reduce_over_ranks(LearnerParts& l);
/// Sums `sums` and the metrics over ranks.
void all_reduce_metrics(
    LearnerParts& l,
    std::vector<Metric>& metrics,
    const torch::Tensor& sums);
/// Sets the model's buffers to those of rank 0.
void broadcast_buffers(LearnerParts& l);
/// Begins an accumulation window, as `state.accumulation` says.
void begin_window(LearnerParts& l);
/// Counts this training batch on all ranks where each has data of its own.
void count_samples_of_ranks(LearnerParts& l);
ShardedSampler::RealSamples samples_of_batch(LearnerParts& l);
/// How much the loss of this batch counts, here and on all ranks, which all call
/// it.
StepWindow::Counts counts_of_ranks(LearnerParts& l);

// ---- explain_out_of_memory.cpp ----

/// "fp32", "fp16 model, fp32 masters", ..., as a fit would compute.
std::string precision_text(const LearnerParts& l);
/// Throws what says more, if that was the error.
void explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step);

}  // namespace tern::loop
