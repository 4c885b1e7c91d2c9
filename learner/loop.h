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

/// The steps of the training loop and the scopes in which they run.
/// learner/fit.cpp calls them in order. Private to Tern.
namespace tern {

/// Disables autocast during a fit or an evaluation: an AutocastGuard of the
/// surrounding program would cache 16-bit copies of weights that change.
class NoAutocast {
 public:
  explicit NoAutocast(torch::Device device);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_on_;
};

/// While it exists, redirects this thread's LibTorch warnings to a sink. Each
/// warning is sent only once. This includes warnings of GradScaler, which are
/// LibTorch warnings.
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

/// One `fit`, from its checks to on_train_end, which is also called after an
/// exception.
class FitScope {
 public:
  FitScope(
      LearnerParts& l,
      int64_t epochs,
      const LearningRates& lr,
      Callbacks extra);
  ~FitScope();
  FitScope(const FitScope&) = delete;

  /// Calls `train`, then every on_train_end, and rethrows the first exception
  /// of an on_train_end.
  void run(c10::function_ref<void()> train);

 private:
  void end();
  std::exception_ptr run_train_end(bool failed);
  void leave();

  LearnerParts& l_;
  Callbacks extra_;
  size_t added_ = 0;  // callbacks of `extra_` added so far
  std::map<std::string, std::string> settings_before_;
  bool is_open_ = true;
  NoAutocast no_autocast_;
  SinkWarnings warnings_;
};

/// The scope of an evaluation: no grad, eval mode, and separate random numbers.
/// On exit everything is restored, including the training step or the batch of
/// an outer evaluation in which a callback started this one.
class EvalScope {
 public:
  explicit EvalScope(LearnerParts& l, const PassOptions& pass = {});
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;

  /// Ends the evaluation without an error. Rethrows the first exception of an
  /// on_eval_end.
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
  StateDict random_;  // state of the generators before
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
/// Runs forward, backward and the optimizer's step on the batch in
/// `state.batch_data`.
void train_step(LearnerParts& l);
void forward(LearnerParts& l, bool with_loss);
/// Evaluates the model on the loader's data.
/// \param each  Called after every batch.
/// \return true if the pass reached the end of the data, false if a stop
///         request cut it short.
bool evaluate(
    LearnerParts& l,
    const DataLoader& loader,
    bool with_loss,
    const std::function<void()>& each,
    const PassOptions& pass = {});

// ---- events.cpp ----

/// True if the callback's role lets it receive this event.
bool receives(
    const LearnerParts& l,
    const CallbackHandle& callback,
    Event event);
/// Calls all callbacks. A callback that was added during the fit has already
/// received on_train_begin and on_epoch_begin and does not receive them again.
void run(LearnerParts& l, Event event);
/// Calls the on_train_begin, and within an epoch the on_epoch_begin, of a
/// callback that was added during the fit and has missed them.
void begin_late(LearnerParts& l, const CallbackHandle& callback);
/// Calls the on_train_end of a callback that is removed during the fit.
void end_early(LearnerParts& l, const CallbackHandle& callback);
/// Returns the callbacks by names such as "callbacks/EarlyStopping 0": the
/// class name and an index among callbacks of that name, in the order in which
/// they run.
std::vector<std::pair<std::string, Callback*>> named_callbacks(
    const LearnerParts& l);
/// Like `named_callbacks`, to record changes of the list. Callbacks that were
/// passed to `fit` are numbered separately, as "of the fit/EarlyStopping 0", so
/// that the names of the others do not change during the fit.
std::vector<std::pair<std::string, CallbackHandle>> names_in_fit(
    const LearnerParts& l);
/// Returns the names of callbacks that existed when the running fit began and
/// were removed since.
std::vector<std::string> removed_in_fit(const LearnerParts& l);
/// Sends this event to every callback, even if some of them throw.
/// \return the first exception; null if `failed` is set, because there is then
///         an earlier exception.
std::exception_ptr run_all(LearnerParts& l, Event event, bool failed);
void run_exception(LearnerParts& l, const std::exception& error);
/// Sets the optimizer's copies of the weights, if it has any, to the current
/// weights. Call this after the weights, but not the optimizer's state, were
/// replaced.
void replace_weight_copies(LearnerParts& l);
/// Invalidates recorded graphs and sends on_load. Call this after weights or
/// optimizer state were replaced from outside training.
void invalidate_derived_state(LearnerParts& l);

// ---- step.cpp ----

/// True if this fit must not run, because a stop was requested earlier, or
/// because a resumed run had already completed it.
bool is_fit_skipped(LearnerParts& l, int64_t epochs, const LearningRates& lr);
/// Called after on_train_begin.
void begin_training(LearnerParts& l);
bool has_next_epoch(const LearnerParts& l);
/// Called after on_epoch_begin.
void begin_epoch(LearnerParts& l);
DataLoader::Epoch begin_batches(LearnerParts& l);
void end_batches(LearnerParts& l);
DataLoader::Epoch begin_pass(LearnerParts& l, const DataLoader& loader);
/// Called before on_epoch_end.
/// \return false for an epoch that a stop request cut short, and for an epoch
///         without batches because the data ended with the previous epoch.
bool completes_epoch(LearnerParts& l);
/// Called after on_epoch_end.
void end_epoch(LearnerParts& l);

/// Returns the next batch; unset at the end of the data, after a callback ended
/// the epoch or the fit, and when a stop request ends the fit or cuts the
/// evaluation short.
std::optional<Batch> next_batch(LearnerParts& l, DataLoader::Epoch& batches);
void start_batch(LearnerParts& l, Batch batch);
/// Calls `train_step` or the StepRunner that replaces it.
void run_step(LearnerParts& l);
void end_batch(LearnerParts& l);
void clear_batch(LearnerParts& l);
/// Calls `compute`, a forward pass, in the Learner's precision, for example
/// under autocast after to_amp.
void in_forward_precision(LearnerParts& l, c10::function_ref<void()> compute);
Tensors run_model(LearnerParts& l, const Tensors& inputs);
/// Sets the default loss for targets of this dtype, unless a loss is set.
void choose_loss(LearnerParts& l, const Tensors& targets);
/// Sets the default loss for a batch without targets: reads one target from the
/// data, unless the data describes its classes or outputs.
void choose_loss_by_data(LearnerParts& l);
/// Warns once if the outputs will be shown as class probabilities but no
/// activation is declared that makes them probabilities.
/// \param output  The output for a batch, as it will be shown; undefined if it
///                is not known yet.
void warn_of_raw_outputs(LearnerParts& l, const torch::Tensor& output = {});
torch::Tensor compute_loss(LearnerParts& l);
/// Returns the weight of this batch's loss, `Loss::count`, from targets in host
/// memory, without synchronizing with a GPU. If the targets are only on the
/// GPU, returns the number of samples.
double count_of_batch(const LearnerParts& l, const Loss& loss);
/// Multiplies the loss for the backward pass by its weight within the
/// accumulation window and among ranks.
void weight_loss(LearnerParts& l);
/// Detaches the loss, and rescales the gradients of an accumulation window that
/// ended early.
void finish_backward(LearnerParts& l);
/// Detaches scaled gradients from the parameters while callbacks run, so that
/// no callback reads, clips or logs scaled values: `grad()` is either unscaled
/// or undefined. Moves only tensor handles, and does nothing without a loss
/// scale.
void detach_scaled_gradients(LearnerParts& l);
/// Attaches the gradients again, for the next backward pass and for the
/// optimizer.
void attach_scaled_gradients(LearnerParts& l);
/// Unscales the gradients of the tensors that the optimizer updates.
void unscale_gradients(LearnerParts& l);
void optimizer_step(LearnerParts& l);
void zero_grad(LearnerParts& l);

// ---- new_parameters.cpp ----

/// Updates layer groups, master weights and the optimizer after modules of the
/// model were added, replaced or removed. The state of the other parameters is
/// kept.
/// \throws c10::ValueError naming the parameters if that is not possible.
void follow_model(LearnerParts& l);
/// Like `follow_model`, after the first forward pass of a fit, which may create
/// layers.
void follow_first_forward(LearnerParts& l);
/// Warns after the first backward pass of a fit if parameters have no gradient.
void look_at_first_gradients(LearnerParts& l);

// ---- learner.cpp ----

/// Sets one value per layer group. The weight decay of parameters that are
/// exempt from it stays 0.
void set_hyper_parameter(
    LearnerParts& l,
    HyperParameter hyper,
    const std::vector<double>& values);

// ---- evaluate.cpp ----

/// Clears the validation results at the beginning of an epoch.
/// `restore_validation` undoes this if the epoch turns out to have no batches.
void forget_validation(LearnerParts& l);
void restore_validation(LearnerParts& l);
void validate_after_epoch(LearnerParts& l);
/// Updates each metric with the batch in `l.state`. A detector's outputs are
/// decoded once for all metrics that take detections.
void update_metrics(LearnerParts& l, std::vector<Metric>& metrics);
/// Computes the loss and every metric over all batches. Unset if a stop request
/// cut the pass short.
std::optional<Validation>
evaluate_metrics(LearnerParts& l, Split split, const PassOptions& pass);

// ---- scopes.cpp ----

int64_t trained_parameters(const LearnerParts& l);
/// Returns for each parameter whether it is trainable, and if not, whether the
/// Learner has frozen it: [P] kByte, in the model's order.
torch::Tensor trained_flags(const LearnerParts& l);
void set_trained_flags(LearnerParts& l, const torch::Tensor& flags);
/// Returns the fingerprint of the training data, or of the data of all ranks if
/// each rank has separate data. Called by all ranks.
const std::string& data_fingerprint(LearnerParts& l);
/// Describes the data and the fit, to compare on resume.
std::map<std::string, std::string> data_settings(LearnerParts& l);
std::map<std::string, std::string>
fit_settings(LearnerParts& l, int64_t epochs, const LearningRates& lr);

// ---- predictions.cpp ----

/// Predicts one sample. Returns all outputs, activated, on the CPU, without the
/// batch dimension.
Tensors sample_outputs(LearnerParts& l, at::TensorList inputs);

// ---- synchronize_ranks.cpp ----

/// Sets the communicator. From now on each epoch trains and validates on this
/// rank's shard of the data, or on all of this rank's data if each rank has
/// separate data.
void set_communicator(
    LearnerParts& l,
    std::shared_ptr<Communicator> communicator,
    bool shard_data);
/// Returns the number of shards into which the data is divided.
int64_t data_shards(const LearnerParts& l);
const DataLoader& training_loader(LearnerParts& l);
const DataLoader&
shard_of(LearnerParts& l, const DataLoader& loader, bool equal_batches);
/// Throws unless all ranks resume from the same checkpoint and step.
void check_same_checkpoint(LearnerParts& l);
/// Throws unless all ranks start at the same position with the same weights.
void check_same_start(LearnerParts& l);
/// Throws, naming parameters, unless all ranks have the same weights.
/// \param when  For the error message, such as "before the first step".
void check_same_weights(LearnerParts& l, const std::string& when);
/// Synchronizes the decisions of callbacks: skip and stop flags are set if any
/// rank set them, and learning rates are taken from rank 0. Does nothing in a
/// single process.
void sync_decisions(LearnerParts& l);
/// Returns the number of validation batches that every rank has. Called by all
/// ranks.
int64_t common_batches(LearnerParts& l, const DataLoader& whole);
/// Ends the validation on all ranks after the same batch if one of them
/// received a stop request. Does nothing after the last common batch.
void sync_validation_stop(LearnerParts& l, int64_t common_batches);
/// Calls `act` on every rank. If it throws on one rank, all ranks throw: the
/// others throw a DataError with the same text, or a c10::Error if the original
/// was not a DataError. Used where rank 0 writes a file: no rank continues
/// before the file is written.
void run_on_all_ranks(LearnerParts& l, c10::function_ref<void()> act);
/// Returns the first rank on which `is_true` is set; unset if there is none.
std::optional<int64_t> first_rank_where(LearnerParts& l, bool is_true);
AllReduce all_reduce_over_ranks(LearnerParts& l);
/// Sums `sums` and the metrics over ranks.
void all_reduce_metrics(
    LearnerParts& l,
    std::vector<Metric>& metrics,
    const torch::Tensor& sums);
/// Sets the model's buffers to rank 0's values.
void broadcast_buffers(LearnerParts& l);
/// Begins an accumulation window according to `state.accumulation`.
void begin_window(LearnerParts& l);
/// Counts the samples of this training batch on all ranks, if each rank has
/// separate data.
void count_samples_of_ranks(LearnerParts& l);
ShardedSampler::RealSamples samples_of_batch(LearnerParts& l);
/// Returns the weight of this batch's loss on this rank and over all ranks.
/// Called by all ranks.
StepWindow::Counts counts_of_ranks(LearnerParts& l);

// ---- explain_out_of_memory.cpp ----

/// Returns the precision in which a fit would compute: "fp32", "fp16 model,
/// fp32 master weights", and so on.
std::string precision_text(const LearnerParts& l);
/// Throws a more informative error if `error` is an out-of-memory error.
void explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step);

}  // namespace tern::loop
