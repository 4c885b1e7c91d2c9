#pragma once

#include <exception>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "tern/learner/learner_parts.h"

namespace tern {
struct Checkpoint;  // learner/checkpoint.h
}  // namespace tern

/// The steps of the training loop, which learner/fit.cpp puts in order. Private
/// to Tern.
namespace tern::loop {

// ---- fit.cpp ----

void train_epochs(LearnerParts& l, int64_t epochs);
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

// ---- callbacks.cpp ----

/// Whether this event reaches the callback, by its role.
bool hears(const LearnerParts& l, const CallbackHandle& callback, Event event);
void run(LearnerParts& l, Event event);
/// Every callback gets this event, whatever the others throw.
/// \return the first error, unless `failed`: there is one already then.
std::exception_ptr run_all(LearnerParts& l, Event event, bool failed);
void run_exception(LearnerParts& l, const std::exception& error);

// ---- step.cpp ----

void start_batch(LearnerParts& l, Batch batch);
void end_batch(LearnerParts& l);
/// The step becomes a graph, or none: null. Between fits.
void set_step_graph(LearnerParts& l, std::shared_ptr<StepGraph> graph);
void begin_steps(LearnerParts& l);
void plan_step(LearnerParts& l);
void make_step(LearnerParts& l);
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

// ---- layer_groups.cpp ----

void make_optimizer(LearnerParts& l);
/// Sets or removes the fp32 masters of a 16-bit model. The optimizer's state
/// moves with its parameters.
void set_masters(LearnerParts& l, std::shared_ptr<MasterWeights> masters);

// ---- resume.cpp ----

/// Whether this fit was complete when the checkpoint was made that the training
/// goes on from, and another one begun.
bool was_done_before(LearnerParts& l, int64_t epochs, const LearningRates& lr);
void continue_from_checkpoint(LearnerParts& l, bool in_epoch);
Checkpoint capture_checkpoint(LearnerParts& l);
/// Names this training in its checkpoints, over all continuations.
const std::string& run_id(LearnerParts& l);
/// Tells whoever holds something made from the weights or the optimizer's state
/// that others were put in: recorded graphs, callbacks (on_load).
void state_was_replaced(LearnerParts& l);

// ---- communicator.cpp: what is the same on all ranks ----

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

// ---- out_of_memory.cpp ----

/// Throws what says more, if that was the error.
void explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step);

}  // namespace tern::loop
