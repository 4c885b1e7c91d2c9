// The parts of one training step, which learner/fit.cpp puts in order.

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/error_text.h"
#include "tern/learner/communicator.h"
#include "tern/learner/loop.h"

namespace tern {

void loop::start_batch(LearnerParts& l, Batch batch) {
  l.state.batch_arrived = std::chrono::steady_clock::now();
  l.state.batch_loss = {};
  l.host_targets = batch.targets;
  l.state.batch_data = l.copy_stream.to(l.data.device, batch);
  // Each rank's part of a batch has random numbers of its own.
  const int64_t key = l.communicator && l.state.training
                          ? l.state.batch * l.communicator->world_size() +
                                l.communicator->rank()
                          : l.state.batch;
  const BatchTransformContext context{
      .training = l.state.training || l.augmented_pass,
      .dtype = l.state.input_dtype,
      .seed = l.data.train ? l.data.train->options().seed : 0,
      .epoch = l.augmented_pass.value_or(l.epochs_begun),
      .batch = key};
  for (const BatchTransform& transform : l.data.batch_transforms) {
    transform(l.state.batch_data, context);
  }
}

// Before the next batch is made: it takes the same memory, still in the cache.
void loop::end_batch(LearnerParts& l) {
  l.state.outputs.clear();
  l.state.batch_data = {};
  l.host_targets.clear();
}

void loop::in_forward_precision(
    LearnerParts& l,
    c10::function_ref<void()> compute) {
  l.precision ? l.precision->forward(*l.self, compute) : compute();
}

Tensors loop::run_model(LearnerParts& l, const Tensors& inputs) {
  try {
    return l.model.forward(inputs);
  } catch (const c10::Error& error) {
    explain_out_of_memory(l, error, "the forward pass");
    throw;
  }
}

torch::Tensor loop::compute_loss(LearnerParts& l) {
  const Tensors& targets = l.state.batch_data.targets;
  if (!l.options.loss) l.options.loss = Loss::for_targets(targets);
  l.options.loss.check_class_indices(l.state.outputs, l.host_targets);
  const Loss& chosen = l.state.batch_loss ? l.state.batch_loss : l.options.loss;
  torch::Tensor loss;
  try {
    loss = chosen(l.state.outputs, targets);
  } catch (const c10::Error& error) {
    explain_out_of_memory(l, error, "the loss");
    const std::string reason = reason_of(error);
    if (reason.starts_with('[')) throw;  // a sentence already
    throw c10::ValueError(
        {__func__, __FILE__, __LINE__},
        fmt::format(
            "[Learner] the loss cannot compare these: outputs are {}, targets "
            "{}; {}. Make the model's outputs and the data set's targets what "
            "the loss expects.",
            shapes_of(l.state.outputs),
            shapes_of(targets),
            reason));
  }
  TORCH_CHECK_VALUE(
      !l.state.training || loss.requires_grad(),
      "[Learner] the loss requires no gradient, so nothing can be learnt from "
      "it; expected one that is computed from the model's outputs without "
      "detach, item or a NoGradGuard.");
  return loss;
}

// Whether this batch completes a step, and what it weighs in it.
void loop::plan_step(LearnerParts& l) {
  TrainState& s = l.state;
  // All have to know alike whether this batch is the last.
  if (s.accumulation.batches != 1) agree(l);
  const bool is_last =
      s.batch + 1 == s.batches || s.stop_epoch || s.stop_training;
  l.weight = l.window.add(samples_of_batch(l), is_last);
  s.accumulating = !l.window.is_complete();
  if (s.accumulating) s.skip_step = s.skip_zero_grad = true;
}

void loop::begin_steps(LearnerParts& l) {
  if (l.step_runner) l.step_runner->begin(*l.self);
}

void loop::make_step(LearnerParts& l) {
  l.step_runner ? l.step_runner->step(*l.self) : train_step(l);
}

// After on_backward_begin, which may put another loss in its place.
void loop::weigh_loss(LearnerParts& l) {
  if (l.weight != 1) l.state.loss_grad = l.state.loss_grad * l.weight;
}

void loop::complete_gradients(LearnerParts& l) {
  l.has_gradients = true;
  if (l.state.accumulating || l.window.correction() == 1) return;
  Tensors gradients;
  for (const ModelTensor& p : l.model.parameters()) {
    if (p.tensor.grad().defined()) gradients.push_back(p.tensor.grad());
  }
  const torch::NoGradGuard no_grad;
  if (!gradients.empty()) {
    at::_foreach_mul_(gradients, l.window.correction());
  }
}

std::vector<NamedGradient> Learner::gradients() {
  TORCH_CHECK(
      parts_->has_gradients,
      "[Learner::gradients] there are no gradients now; call it from a "
      "callback's on_backward_end or on_step.");
  const torch::NoGradGuard no_grad;
  const bool is_partial = parts_->state.skip_step;
  torch::Tensor scale;
  if (parts_->precision && is_partial) {
    const torch::Tensor record = parts_->precision->loss_scale_record();
    if (record.defined()) scale = record[0];
  } else if (parts_->precision) {
    parts_->precision->unscale(*this);
  }
  std::vector<NamedGradient> result;
  for (const ModelTensor& p : parts_->model.parameters()) {
    const torch::Tensor stepped = parts_->stepped_weights && !is_partial
                                      ? parts_->stepped_weights->of(p.tensor)
                                      : p.tensor;
    torch::Tensor gradient = stepped.grad();
    if (!gradient.defined()) continue;
    if (is_partial) {
      gradient = gradient.to(torch::kFloat, false, /*copy=*/true);
      if (scale.defined()) gradient /= scale.to(gradient.device());
    }
    result.push_back({p.name, gradient});
  }
  return result;
}

void loop::step(LearnerParts& l) {
  TrainState& s = l.state;
  l.has_gradients = false;
  if (s.skip_step) {
    if (l.precision) l.precision->abandon(*l.self, s.skip_zero_grad);
    return;
  }
  if (l.precision) {
    s.step_result = l.precision->step(*l.self);
  } else {
    l.self->optimizer().step();
    s.step_result = StepResult::stepped;
  }
  run(l, Event::step_end);
}

void loop::zero_grad(LearnerParts& l) {
  for (const auto& group : l.groups) {
    for (const ModelTensor& parameter : group) {
      parameter.tensor.mutable_grad().reset();
    }
  }
  if (l.stepped_weights) l.stepped_weights->zero_grad();
}

}  // namespace tern
