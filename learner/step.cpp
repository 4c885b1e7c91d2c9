// The steps of the loop between its events, in the order of learner/fit.cpp.

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

// ---- A fit and its epochs ----

namespace {

// Restores the checkpoint to resume from, replacing what callbacks have set up.
// Called after on_train_begin, and again after on_epoch_begin if the checkpoint
// was saved in the middle of an epoch.
void go_on(LearnerParts& l, bool in_epoch) {
  if (l.position.continuation && !l.state.is_dry_run) {
    l.position.continuation->restore(*l.self, in_epoch);
  }
}

}  // namespace

// A stop also ends later fits: if the program continued with them, the results
// would differ from a run without the stop.
bool loop::is_fit_skipped(
    LearnerParts& l,
    int64_t epochs,
    const LearningRates& lr) {
  FitResult& result = l.state.result;
  const bool is_new = !l.state.is_fitting && l.stop.requested.exchange(false);
  if (is_new || result == FitResult::interrupted) {
    result = FitResult::interrupted;
    l.options.sink->line(
        "Not training, because a stop was requested. Set state().result = "
        "FitResult::completed to train again.");
    return true;
  }
  check_same_checkpoint(l);
  const bool is_done = l.position.continuation &&
                       l.position.continuation->is_done(*l.self, epochs, lr);
  if (is_done) l.evaluation.passes = 0;  // as at the end of a fit
  return is_done;
}

void loop::begin_training(LearnerParts& l) {
  l.callbacks.at_fit_begin.clear();
  for (auto& [name, callback] : names_in_fit(l)) {
    const std::shared_ptr<Callback>& shared = callback;
    l.callbacks.at_fit_begin.emplace_back(std::move(name), shared);
  }
  go_on(l, /*in_epoch=*/false);
  check_same_start(l);
  if (l.step.runner) l.step.runner->begin(*l.self);
}

// A checkpoint from the middle of an epoch is kept until that epoch has begun.
// The epoch is completed even if a callback ended training in it.
bool loop::has_next_epoch(const LearnerParts& l) {
  const bool is_over = (l.state.stop_training || l.position.data_have_ended) &&
                       !l.position.continuation;
  return l.state.epoch < l.state.epochs && !is_over && !l.stop.requested;
}

void loop::begin_epoch(LearnerParts& l) {
  begin_window(l);
  l.position.resumes_epoch = l.position.continuation && !l.state.is_dry_run;
  go_on(l, /*in_epoch=*/true);  // unless it is restored already
  l.position.place = Place::in_epoch;
}

DataLoader::Epoch loop::begin_batches(LearnerParts& l) {
  const DataLoader& train = training_loader(l);
  TERN_CHECK_VALUE(
      !l.ranks.communicator || !train.dataset().can_end_early(),
      "[Learner::fit] the training data may end at a different batch on each "
      "of {} ranks, which would then wait for each other; expected data of a "
      "fixed length. Train in one process, or let the stream restart "
      "(StreamDataset::can_restart).",
      l.ranks.communicator->world_size());
  l.state.batch = l.position.batches_done =
      std::exchange(l.position.first_batch, 0);
  l.state.batches = train.size();
  if (!std::exchange(l.position.resumes_epoch, false)) {
    l.state.stop_epoch = false;
  }
  l.state.training = true;
  l.model.train();
  return train.epoch(l.position.epochs_begun++, l.position.batches_done);
}

// The gradients of an incomplete accumulation window are discarded.
void loop::end_batches(LearnerParts& l) {
  if (l.step.window.is_open()) zero_grad(l);
  l.step.window.close();
}

DataLoader::Epoch loop::begin_pass(LearnerParts& l, const DataLoader& loader) {
  l.state.batches = loader.size();
  return loader.epoch(l.evaluation.augmented_pass.value_or(0));
}

bool loop::completes_epoch(LearnerParts& l) {
  if (l.stop.requested) return false;
  l.callbacks.begun_epoch.reset();
  const bool is_empty =
      l.position.data_have_ended && l.position.batches_done == 0;
  l.position.place = is_empty ? Place::outside_epoch : Place::at_epoch_end;
  return !is_empty;
}

void loop::end_epoch(LearnerParts& l) {
  sync_decisions(l);
  l.position.place = Place::outside_epoch;
}

// ---- A batch ----

namespace {

void multiply_gradients(LearnerParts& l, double factor) {
  if (factor == 1) return;
  Tensors gradients;
  for (const ModelTensor& p : l.model.parameters()) {
    if (p.tensor.grad().defined()) gradients.push_back(p.tensor.grad());
  }
  const torch::NoGradGuard no_grad;
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

// Makes the optimizer's step of an accumulation window whose last batch was not
// known to be the last one. Callbacks get on_step and on_step_end with the index
// of that batch, but without its tensors.
void step_after_batch(LearnerParts& l) {
  TrainState& s = l.state;
  l.step.window.complete();
  loop::attach_scaled_gradients(l);
  // A callback may have discarded the gradients.
  const bool has_gradients = std::ranges::any_of(
      l.model.parameters(),
      [](const ModelTensor& p) { return p.tensor.grad().defined(); });
  multiply_gradients(l, l.step.window.correction());
  loop::detach_scaled_gradients(l);
  if (!has_gradients) return;
  s.accumulating = s.skip_step = s.skip_zero_grad = false;
  l.step.has_gradients = l.step.is_running = l.step.follows_batch = true;
  --s.batch;
  loop::run(l, Event::step);
  loop::optimizer_step(l);
  if (!s.skip_zero_grad) loop::zero_grad(l);
  ++s.batch;
  l.step.is_running = l.step.follows_batch = false;
}

// Ends the epoch and the fit at the end of the data, as if they were planned to
// end there. An epoch without a batch is dropped (`completes_epoch`).
void end_of_data(LearnerParts& l, const std::optional<Batch>& last) {
  TrainState& s = l.state;
  l.position.data_have_ended = true;
  s.stop_epoch = true;  // so that the last batch completes a step
  if (last) return;
  if (l.step.window.is_open()) step_after_batch(l);
  if (s.batch > 0) return;
  loop::restore_validation(l);
  TERN_CHECK_VALUE(
      s.epoch > 0,
      "[Learner::fit] the training data ended before the first batch; expected "
      "at least one of {} samples. A stream that cannot restart is exhausted "
      "by the first fit or lr_find: pass the Learner a new stream.",
      l.data.train->options().batch_size);
  s.stop_training = true;
}

}  // namespace

std::optional<Batch> loop::next_batch(
    LearnerParts& l,
    DataLoader::Epoch& batches) {
  TrainState& s = l.state;
  if (s.training && (s.stop_epoch || s.stop_training)) return std::nullopt;
  // A stop takes effect between steps, so a step that has begun is completed.
  // Passes started by a program or a callback always run to the end.
  const bool can_stop =
      s.training ? !l.step.window.is_open() : l.evaluation.pass.can_be_cut;
  std::optional<Batch> batch;
  if (!can_stop) {
    batch = batches.next();
  } else if (!l.stop.requested) {
    batch = batches.next(&l.stop.requested);
  }
  // Also applies if the stop was requested while waiting for the loader.
  if (can_stop && !s.training && !batch) {
    l.evaluation.was_cut = l.stop.requested;
  }
  if (s.training && batches.has_ended_early()) end_of_data(l, batch);
  return batch;
}

void loop::start_batch(LearnerParts& l, Batch batch) {
  if (l.state.training) {
    // The weights of the ranks and of accumulated batches assume full batches.
    TERN_CHECK_VALUE(
        batch.left_out.empty(),
        "[Learner::fit] the dataset omitted {} samples from a training batch; "
        "expected replacements for them. Set DataLoaderOptions::training for "
        "the training loader, so that BadImagePolicy::skip replaces images.",
        batch.left_out.size());
    l.state.skip_step = l.state.skip_zero_grad = false;
    l.step.is_running = true;
    l.evaluation.passes = 0;
  }
  l.state.batch_arrived = std::chrono::steady_clock::now();
  l.state.batch_loss = {};
  l.step.host_targets = batch.targets;
  l.step.sample_indices = batch.indices;
  l.state.batch_data = l.step.copy_stream.to(l.data.device, batch);
  if (l.state.training) count_samples_of_ranks(l);
  // Each rank's part of a batch has different random numbers.
  const int64_t key = l.ranks.communicator && l.state.training
                          ? l.state.batch * l.ranks.communicator->world_size() +
                                l.ranks.communicator->rank()
                          : l.state.batch;
  const BatchTransformContext context{
      .training = l.state.training || l.evaluation.augmented_pass,
      .dtype = l.state.input_dtype,
      .seed = l.data.train ? l.data.train->options().seed : 0,
      .epoch = l.evaluation.augmented_pass.value_or(l.position.epochs_begun),
      .batch = key};
  for (const BatchTransform& transform : l.data.batch_transforms) {
    transform(l.state.batch_data, context);
  }
}

void loop::end_batch(LearnerParts& l) {
  sync_decisions(l);
  clear_batch(l);
  ++l.state.batch;
}

// Frees the batch before the next one is created, which then reuses the memory
// while it is still in the cache.
void loop::clear_batch(LearnerParts& l) {
  l.state.outputs.clear();
  l.state.batch_data = {};
  l.step.host_targets.clear();
}

void loop::in_forward_precision(
    LearnerParts& l,
    c10::function_ref<void()> compute) {
  l.precision ? l.precision->forward(*l.self, compute) : compute();
}

Tensors loop::run_model(LearnerParts& l, const Tensors& inputs) {
  // part_loss runs the model itself.
  if (l.step.part_loss && l.state.training) return {};
  try {
    return l.model.forward(inputs);
  } catch (const c10::Error& error) {
    explain_out_of_memory(l, error, "the forward pass");
    throw;
  }
}

void loop::choose_loss(LearnerParts& l, const Tensors& targets) {
  if (l.options.loss) return;
  l.options.loss = Loss::for_targets(targets, l.data.outputs);
}

namespace {

// Returns a loss of 0 with gradients of 0, because a mean without values would
// be NaN. All parameters get a gradient, which is required for training on
// several ranks.
torch::Tensor loss_of_nothing(
    const Tensors& outputs,
    const torch::Tensor& loss) {
  torch::Tensor nothing = torch::zeros_like(loss);
  for (const torch::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    const torch::Tensor all =
        torch::ones({}, output.options().dtype(torch::kBool));
    nothing = nothing + output.masked_fill(all, 0).sum().to(loss.scalar_type());
  }
  return nothing;
}

}  // namespace

double loop::count_of_batch(const LearnerParts& l, const Loss& loss) {
  const auto samples =
      std::max<double>(1, static_cast<double>(l.state.batch_data.size()));
  if (loss.counts_samples()) return samples;
  const Tensors& targets = l.state.batch_data.targets;
  const auto is_on_host = [](const torch::Tensor& t) { return t.is_cpu(); };
  if (std::ranges::all_of(targets, is_on_host))
    return loss.count(l.state.outputs, targets);
  const bool is_known = std::ranges::equal(
      targets,
      l.step.host_targets,
      [&](const torch::Tensor& target, const torch::Tensor& on_host) {
        return is_on_host(on_host) && target.sizes() == on_host.sizes();
      });
  return is_known ? loss.count(l.state.outputs, l.step.host_targets) : samples;
}

torch::Tensor loop::compute_loss(LearnerParts& l) {
  if (l.step.part_loss && l.state.training) {
    l.step.loss_count = count_of_batch(l, Loss());
    return l.step.part_loss(l.state.batch_data);
  }
  const Tensors& targets = l.state.batch_data.targets;
  choose_loss(l, targets);
  l.options.loss.check_class_indices(l.state.outputs, l.step.host_targets);
  const Loss& chosen = l.state.batch_loss ? l.state.batch_loss : l.options.loss;
  torch::Tensor loss;
  try {
    loss = chosen(l.state.outputs, targets);
  } catch (const c10::Error& error) {
    explain_out_of_memory(l, error, "the loss");
    const std::string reason = reason_of(error);
    if (reason.starts_with('[')) throw;  // already explained
    throw c10::ValueError(
        {__func__, __FILE__, __LINE__},
        fmt::format(
            "[Learner] the loss cannot compare the outputs {} with the targets "
            "{}; {}. Change the model's outputs or the dataset's targets to "
            "match the loss.",
            shapes_of(l.state.outputs),
            shapes_of(targets),
            reason));
  }
  l.step.loss_count = count_of_batch(l, chosen);
  if (l.step.loss_count == 0 && !chosen.counts_samples())
    loss = loss_of_nothing(l.state.outputs, loss);
  // If this rank's batch contains only repeated samples, they count on other
  // ranks.
  if (l.ranks.communicator && l.state.training &&
      samples_of_batch(l).of_rank == 0) {
    l.step.loss_count = 0;
  }
  TORCH_CHECK_VALUE(
      !l.state.training || loss.requires_grad(),
      "[Learner] the loss does not require a gradient, so it trains nothing; "
      "expected a loss computed from the model's outputs without detach, item "
      "or a NoGradGuard.");
  return loss;
}

void loop::run_step(LearnerParts& l) {
  TrainState& s = l.state;
  // A callback may have changed the accumulation since the last step.
  if (!l.step.window.is_open()) begin_window(l);
  // All ranks must agree on whether this batch is the last.
  if (s.accumulation.batches != 1) sync_decisions(l);
  const bool is_last =
      s.batch + 1 == s.batches || s.stop_epoch || s.stop_training;
  l.step.window.add(samples_of_batch(l), is_last);
  s.accumulating = !l.step.window.is_complete();
  if (s.accumulating) s.skip_step = s.skip_zero_grad = true;
  l.step.runner ? l.step.runner->step(*l.self) : train_step(l);
  l.step.is_running = false;
  ++s.iteration;
  ++l.position.batches_done;
}

// Called after on_backward_begin, which may replace the loss.
void loop::weight_loss(LearnerParts& l) {
  attach_scaled_gradients(l);  // backward adds to the window's gradients
  const double weight = l.step.window.weigh(counts_of_ranks(l));
  multiply_gradients(l, l.step.window.rescale());
  if (weight != 1) l.state.loss_grad = l.state.loss_grad * weight;
}

void loop::finish_backward(LearnerParts& l) {
  l.state.loss = l.state.loss.detach();
  l.state.loss_grad.reset();
  l.step.has_gradients = true;
  look_at_first_gradients(l);
  if (!l.state.accumulating) multiply_gradients(l, l.step.window.correction());
  detach_scaled_gradients(l);
}

void loop::detach_scaled_gradients(LearnerParts& l) {
  if (!l.step.detached_gradients.empty() || !l.state.scaler) return;
  for (const auto& group : l.groups.parameters) {
    for (const ModelTensor& p : group) {
      l.step.detached_gradients.push_back(
          std::exchange(p.tensor.mutable_grad(), torch::Tensor()));
    }
  }
}

void loop::attach_scaled_gradients(LearnerParts& l) {
  if (l.step.detached_gradients.empty()) return;
  const Tensors detached = std::exchange(l.step.detached_gradients, {});
  auto next = detached.begin();
  for (const auto& group : l.groups.parameters) {
    for (const ModelTensor& p : group) p.tensor.mutable_grad() = *next++;
  }
}

void loop::unscale_gradients(LearnerParts& l) {
  attach_scaled_gradients(l);
  if (l.precision) l.precision->unscale(*l.self);
}

void loop::optimizer_step(LearnerParts& l) {
  TrainState& s = l.state;
  l.step.has_gradients = false;
  attach_scaled_gradients(l);
  if (s.skip_step) {
    if (l.precision) l.precision->abandon(*l.self, s.skip_zero_grad);
    detach_scaled_gradients(l);
    return;
  }
  if (l.precision) {
    s.step_result = l.precision->step(*l.self);
  } else {
    l.self->optimizer().step();
    s.step_result = StepResult::stepped;
  }
  detach_scaled_gradients(l);
  if (!l.step.part_loss) run(l, Event::step_end);
}

void loop::zero_grad(LearnerParts& l) {
  l.step.detached_gradients.clear();
  for (const auto& group : l.groups.parameters) {
    for (const ModelTensor& parameter : group) {
      parameter.tensor.mutable_grad().reset();
    }
  }
  if (l.stepped_weights) l.stepped_weights->zero_grad();
}

// ---- The accumulation window ----

void StepWindow::begin(
    const Accumulation& accumulation,
    int64_t batch_size,
    int64_t world_size) {
  accumulation_ = accumulation;
  world_size_ = world_size;
  full_ =
      world_size * (accumulation.samples ? accumulation.samples
                                         : accumulation.batches * batch_size);
  close();
  is_complete_ = true;
}

double StepWindow::add(
    const ShardedSampler::RealSamples& samples,
    bool is_last) {
  is_complete_ = true;
  added_ = std::max<int64_t>(samples.of_all, 1);
  if (accumulation_.batches != 1) {
    before_ = batches_ == 0 ? Sum() : now_;
    ++batches_;
    samples_ += samples.of_all;
    const bool is_full = accumulation_.samples
                             ? samples_ >= full_
                             : batches_ >= accumulation_.batches;
    is_complete_ = is_full || is_last;
    if (is_complete_) close();
  }
  return weigh(
      {static_cast<double>(samples.of_rank),
       static_cast<double>(samples.of_all)});
}

void StepWindow::complete() {
  is_complete_ = true;
  correction_ = now_.counted > 0 ? now_.expected / now_.counted : 1;
  close();
}

double StepWindow::weigh(const Counts& counts) {
  correction_ = rescale_ = 1;
  const double share = counts.of_rank * static_cast<double>(world_size_);
  if (accumulation_.batches == 1)
    return counts.of_all > 0 ? share / counts.of_all : 1;
  now_ = before_;
  now_.counted += counts.of_all;
  if (now_.counted == 0) return 1;
  if (before_.counted == 0) {
    // Assumes that all batches will have the same count as this one.
    now_.expected = static_cast<double>(full_) * counts.of_all /
                    static_cast<double>(added_);
  } else if (now_.counted > 2 * before_.expected) {
    now_.expected = now_.counted;
    rescale_ = before_.expected / now_.expected;
  }
  if (is_complete_) correction_ = now_.expected / now_.counted;
  return share / now_.expected;
}

// For older checkpoints, in which losses were weighted by samples.
void StepWindow::restore(int64_t batches, int64_t samples) {
  restore(
      batches,
      samples,
      static_cast<double>(samples),
      static_cast<double>(full_));
}

void StepWindow::restore(
    int64_t batches,
    int64_t samples,
    double counted,
    double expected) {
  batches_ = batches;
  samples_ = samples;
  now_ = {counted, expected};
  is_complete_ = batches == 0;
}

}  // namespace tern
