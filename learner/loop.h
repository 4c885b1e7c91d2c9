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

/// Autocast that is on around a fit or an evaluation would keep 16-bit copies
/// of weights that change: off while this lives.
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

/// A pass without training: no gradients, the model in eval, put back after. So
/// is the training step that a callback makes it in.
class EvalScope {
 public:
  explicit EvalScope(LearnerParts& l);
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
    torch::Tensor loss, loss_grad;
    Loss batch_loss;
  };

  void swap_step();
  std::exception_ptr leave(bool failed);

  LearnerParts& l_;
  bool was_training_;
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
/// Forward, backward and the optimizer's step on the batch that is there.
void train_step(LearnerParts& l);
void forward(LearnerParts& l, bool with_loss);
/// A pass without training; `each` sees every batch.
void evaluate(
    LearnerParts& l,
    const DataLoader& loader,
    bool with_loss,
    const std::function<void()>& each);

// ---- events.cpp ----

/// Whether this event reaches the callback, by its role.
bool hears(const LearnerParts& l, const CallbackHandle& callback, Event event);
void run(LearnerParts& l, Event event);
/// Every callback gets this event, whatever the others throw.
/// \return the first error, unless `failed`: there is one already then.
std::exception_ptr run_all(LearnerParts& l, Event event, bool failed);
void run_exception(LearnerParts& l, const std::exception& error);
/// Tells whoever holds something made from the weights or the optimizer's state
/// that others were put in: recorded graphs, callbacks (on_load).
void state_was_replaced(LearnerParts& l);

// ---- step.cpp ----

/// Whether a stop was requested before, or a resumed training had completed
/// this fit already.
bool has_no_work(LearnerParts& l, int64_t epochs, const LearningRates& lr);
/// After on_train_begin.
void begin_training(LearnerParts& l);
bool has_next_epoch(const LearnerParts& l);
/// After on_epoch_begin.
void begin_epoch(LearnerParts& l);
DataLoader::Epoch begin_batches(LearnerParts& l);
void end_batches(LearnerParts& l);
DataLoader::Epoch begin_pass(LearnerParts& l, const DataLoader& loader);
/// Before on_epoch_end, which an epoch that a stop cut off does not have.
bool completes_epoch(LearnerParts& l);
/// After on_epoch_end.
void end_epoch(LearnerParts& l);

/// Nothing at the end, or when the fit has to stop: then `stop_training` is
/// set.
std::optional<Batch> next_batch(LearnerParts& l, DataLoader::Epoch& batches);
void start_batch(LearnerParts& l, Batch batch);
/// `train_step`, or what runs in its place.
void make_step(LearnerParts& l);
void end_batch(LearnerParts& l);
void clear_batch(LearnerParts& l);
/// Calls `compute` as forward passes of this Learner run: after to_amp under
/// autocast.
void in_forward_precision(LearnerParts& l, c10::function_ref<void()> compute);
Tensors run_model(LearnerParts& l, const Tensors& inputs);
/// Sets the loss that suits targets of this type, unless there is one.
void choose_loss(LearnerParts& l, const Tensors& targets);
torch::Tensor compute_loss(LearnerParts& l);
void weigh_loss(LearnerParts& l);
void complete_gradients(LearnerParts& l);
/// While callbacks run, gradients with a loss scale are not at the parameters,
/// so that their `grad()` is true or undefined. The device has no part in it.
void set_gradients_aside(LearnerParts& l, bool aside);
/// Gives the tensors that the optimizer steps their true gradients.
void unscale_gradients(LearnerParts& l);
void step(LearnerParts& l);
void zero_grad(LearnerParts& l);

// ---- parts.cpp ----

/// Sets one value for each layer group. Parameters without weight decay keep
/// none.
void set_hyper_parameter(
    LearnerParts& l,
    HyperParameter hyper,
    const std::vector<double>& values);

// ---- evaluate.cpp ----

void forget_validation(LearnerParts& l);
void validate_after_epoch(LearnerParts& l);
/// The loss and every metric over all batches.
/// \param is_common  All ranks evaluate together, each its share.
Validation evaluate_metrics(LearnerParts& l, Split split, bool is_common);

// ---- scopes.cpp ----

int64_t trained_parameters(const LearnerParts& l);
/// What the data are, and a fit over them, in words: for checkpoints to
/// compare.
std::map<std::string, std::string> data_settings(LearnerParts& l);
std::map<std::string, std::string>
fit_settings(LearnerParts& l, int64_t epochs, const LearningRates& lr);

// ---- agreement.cpp: what is the same on all ranks ----

/// From now on each epoch trains on this rank's share of the data, and the
/// validation of an epoch is shared out.
void set_communicator(
    LearnerParts& l,
    std::shared_ptr<Communicator> communicator);
const DataLoader& training_loader(LearnerParts& l);
const DataLoader&
shard_of(LearnerParts& l, const DataLoader& loader, bool equal_batches);
void check_common_begin(LearnerParts& l);
void check_common_start(LearnerParts& l);
void agree(LearnerParts& l);
void agree_to_stop_validation(LearnerParts& l, const DataLoader& whole);
AllReduce all_reduce_over_ranks(LearnerParts& l);
void add_up_over_ranks(LearnerParts& l, const torch::Tensor& sums);
void share_buffers(LearnerParts& l);
void begin_window(LearnerParts& l);
ShardedSampler::RealSamples samples_of_batch(LearnerParts& l);

// ---- explain_out_of_memory.cpp ----

/// "fp32", "fp16 model, fp32 masters", ..., as a fit would compute.
std::string precision_text(const LearnerParts& l);
/// Throws what says more, if that was the error.
void explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step);

}  // namespace tern::loop
