#pragma once

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/learner/learner_parts.h"

/// The steps of the training loop, which learner/fit.cpp puts in order. Private
/// to Tern.
namespace tern::loop {

// ---- fit.cpp ----

void train_epochs(LearnerParts& l, int64_t epochs);
/// Puts back what `Learner::resume` has read, if it has.
void go_on(LearnerParts& l, bool in_epoch);
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

void start_batch(LearnerParts& l, Batch batch);
void end_batch(LearnerParts& l);
void begin_steps(LearnerParts& l);
void plan_step(LearnerParts& l);
void make_step(LearnerParts& l);
/// Calls `compute` as forward passes of this Learner run: after to_amp under
/// autocast.
void in_forward_precision(LearnerParts& l, c10::function_ref<void()> compute);
Tensors run_model(LearnerParts& l, const Tensors& inputs);
torch::Tensor compute_loss(LearnerParts& l);
void weigh_loss(LearnerParts& l);
void complete_gradients(LearnerParts& l);
void step(LearnerParts& l);
void zero_grad(LearnerParts& l);

// ---- evaluate.cpp, predict.cpp ----

void forget_validation(LearnerParts& l);
void validate_after_epoch(LearnerParts& l);
/// The loss and every metric over all batches.
/// \param is_common  All ranks evaluate together, each its share.
Validation evaluate_metrics(LearnerParts& l, Split split, bool is_common);
Activation activation(LearnerParts& l);

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
void add_up_over_ranks(LearnerParts& l, const torch::Tensor& sums);
void share_buffers(LearnerParts& l);
void begin_window(LearnerParts& l);
StepWindow::Samples samples_of_batch(LearnerParts& l);

// ---- explain_out_of_memory.cpp ----

/// "fp32", "fp16 model, fp32 masters", ..., as a fit would compute.
std::string precision_text(const LearnerParts& l);
/// Throws what says more, if that was the error.
void explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step);

}  // namespace tern::loop
