#include "tern/learner/learner.h"

#include <algorithm>
#include <cmath>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/error_text.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/communicator.h"
#include "tern/learner/host_memory.h"
#include "tern/learner/master_weights.h"
#include "tern/learner/optim/adamw.h"
#include "tern/learner/optim/rebind.h"
#include "tern/learner/progress_printer.h"
#include "tern/learner/resume.h"
#include "tern/learner/step_graph.h"

namespace tern {

Learner::Learner(DataBunch data, Model model, LearnerOptions options)
    : data_(std::move(data)),
      model_(std::move(model)),
      options_(std::move(options)),
      recorder_(std::make_shared<Recorder>()) {
  if (!options_.sink) options_.sink = terminal();
  if (!options_.optimizer) {
    options_.optimizer = tern::optimizer<optim::AdamW>(
        torch::optim::AdamWOptions().betas({0.9, 0.99}));
  }
  TORCH_CHECK_VALUE(
      options_.lr >= 0 && std::isfinite(options_.lr) &&
          options_.weight_decay >= 0 && std::isfinite(options_.weight_decay),
      fmt::format(
          "[Learner] lr is {} and weight_decay is {}; expected finite numbers "
          ">= 0.",
          options_.lr,
          options_.weight_decay));
  if (options_.seed) torch::manual_seed(options_.seed);
  if (data_.device.is_cpu()) keep_freed_memory();
  for (const BatchTransform& transform : data_.batch_transforms) {
    TORCH_CHECK_VALUE(
        transform,
        "[Learner] an entry of DataBunch::batch_transforms is an empty "
        "function; leave it out.");
  }
  check_device_exists(
      "Learner",
      data_.device,
      "set DataBunch::device to one that is there, or to the CPU");
  model_.to(data_.device);
  groups_ = {model_.parameters()};
  TORCH_CHECK_VALUE(
      !groups_[0].empty(),
      "[Learner] the model has no parameters; expected something to train.");
  for (Metric& metric : options_.metrics) metric = metric.anew();
  add(recorder_);
  add<ProgressPrinter>();
  for (const auto& callback : options_.callbacks) add(callback);
}

Learner::~Learner() {
  const bool is_cpu = data_.device.is_cpu();
  optimizer_.reset();
  masters_.reset();
  if (is_cpu) give_back_freed_memory();
}

Learner& Learner::add(CallbackHandle callback) {
  TORCH_CHECK_VALUE(
      static_cast<bool>(callback),
      "[Learner::add] the callback is null; give a callback.");
  TORCH_CHECK_VALUE(
      std::find(callbacks_.begin(), callbacks_.end(), callback) ==
          callbacks_.end(),
      "[Learner::add] this callback was added already; add it once.");
  callback->on_add(*this);
  const auto after = std::upper_bound(
      callbacks_.begin(),
      callbacks_.end(),
      callback,
      [](const auto& a, const auto& b) { return a->order() < b->order(); });
  callbacks_.insert(after, std::move(callback));
  if (step_graph_) step_graph_->forget();
  return *this;
}

Learner& Learner::remove(const Callback& callback) {
  TORCH_CHECK_VALUE(
      &callback != recorder_.get(),
      "[Learner::remove] the Recorder cannot be removed: others read what it "
      "measures. Remove the ProgressPrinter for a Learner that prints "
      "nothing, or use silent().");
  const auto at = std::find_if(
      callbacks_.begin(),
      callbacks_.end(),
      [&](const auto& other) { return other.get() == &callback; });
  if (at == callbacks_.end()) return *this;
  const CallbackHandle removed = *at;
  callbacks_.erase(at);
  if (running_callback_) removed_callbacks_.push_back(removed);
  removed->on_remove(*this);
  if (step_graph_) step_graph_->forget();
  return *this;
}

bool Learner::hears(const CallbackHandle& callback, Event event) const {
  if (!callback.acts_at(event)) return false;
  switch (callback->role()) {
    case CallbackRole::trains:
      return true;
    case CallbackRole::watches:
      return !state_.is_trial;
    case CallbackRole::writes:
      return !state_.is_trial && is_main_process();
  }
  return true;
}

// By index: a callback may add or remove callbacks, itself too. What it removes
// lives until this is over.
void Learner::run(Event event) {
  // A callback may have the Learner validate, which calls callbacks again.
  const auto leave = c10::make_scope_exit([this, outer = running_callback_] {
    running_callback_ = outer;
    if (!outer) removed_callbacks_.clear();
  });
  for (size_t i = 0; i < callbacks_.size(); ++i) {
    if (!hears(callbacks_[i], event)) continue;
    Callback* const callback = callbacks_[i].get();
    running_callback_ = callback;
    callbacks_[i](event, *this);
    if (i < callbacks_.size() && callbacks_[i].get() != callback) {
      const auto at = std::find_if(
          callbacks_.begin(),
          callbacks_.end(),
          [&](const auto& other) { return other.get() == callback; });
      // Removed: the next one has taken its place. Moved: go on behind it.
      i = at == callbacks_.end() ? i - 1 : at - callbacks_.begin();
    }
  }
}

// Every callback gets this event, whatever the others throw. Gives the first
// error unless `failed`: then there is an error already, which this one must
// not hide.
std::exception_ptr Learner::run_all(Event event, bool failed) {
  std::exception_ptr first;
  for (const auto& callback : Callbacks(callbacks_)) {
    if (!hears(callback, event)) continue;
    try {
      callback(event, *this);
    } catch (const std::exception& error) {
      if (!failed && !first) {
        first = std::current_exception();
      } else {
        sink().warning(fmt::format(
            "{} failed too, at the end: {}",
            callback->name(),
            message_of(error)));
      }
    } catch (...) {
      if (!failed && !first) first = std::current_exception();
    }
  }
  return first;
}

void Learner::run_exception(const std::exception& error) {
  for (const auto& callback : Callbacks(callbacks_)) {
    callback->on_exception(*this, error);
  }
}

void Learner::start_batch(Batch batch) {
  state_.batch_arrived = std::chrono::steady_clock::now();
  state_.batch_loss = {};
  host_targets_ = batch.targets;
  state_.batch_data = copy_stream_.to(data_.device, batch);
  // Each rank's part of a batch has random numbers of its own.
  const int64_t key =
      communicator_ && state_.training
          ? state_.batch * communicator_->world_size() + communicator_->rank()
          : state_.batch;
  const BatchTransformContext context{
      .training = state_.training || augmented_pass_,
      .dtype = state_.input_dtype,
      .seed = data_.train ? data_.train->options().seed : 0,
      .epoch = augmented_pass_.value_or(epochs_begun_),
      .batch = key};
  for (const BatchTransform& transform : data_.batch_transforms) {
    transform(state_.batch_data, context);
  }
}

// Before the next batch is made: it takes the same memory, still in the cache.
void Learner::end_batch() {
  state_.outputs.clear();
  state_.batch_data = {};
  host_targets_.clear();
}

Tensors Learner::run_model(const Tensors& inputs) {
  try {
    return model_.forward(inputs);
  } catch (const c10::Error& error) {
    explain_out_of_memory(error, "the forward pass");
    throw;
  }
}

torch::Tensor Learner::compute_loss() {
  const Tensors& targets = state_.batch_data.targets;
  if (!options_.loss) options_.loss = Loss::for_targets(targets);
  options_.loss.check_class_indices(state_.outputs, host_targets_);
  const Loss& chosen = state_.batch_loss ? state_.batch_loss : options_.loss;
  torch::Tensor loss;
  try {
    loss = chosen(state_.outputs, targets);
  } catch (const c10::Error& error) {
    explain_out_of_memory(error, "the loss");
    const std::string reason = reason_of(error);
    if (reason.starts_with('[')) throw;  // a sentence already
    throw c10::ValueError(
        {__func__, __FILE__, __LINE__},
        fmt::format(
            "[Learner] the loss cannot compare these: outputs are {}, targets "
            "{}; {}. Make the model's outputs and the data set's targets what "
            "the loss expects.",
            shapes_of(state_.outputs),
            shapes_of(targets),
            reason));
  }
  TORCH_CHECK_VALUE(
      !state_.training || loss.requires_grad(),
      "[Learner] the loss requires no gradient, so nothing can be learnt from "
      "it; expected one that is computed from the model's outputs without "
      "detach, item or a NoGradGuard.");
  return loss;
}

// Whether this batch completes a step, and what it weighs in it.
void Learner::plan_step() {
  TrainState& s = state_;
  // All have to know alike whether this batch is the last.
  if (s.accumulation.batches != 1) agree();
  const bool is_last =
      s.batch + 1 == s.batches || s.stop_epoch || s.stop_training;
  weight_ = window_.add(samples_of_batch(), is_last);
  s.accumulating = !window_.is_complete();
  if (s.accumulating) s.skip_step = s.skip_zero_grad = true;
}

void Learner::make_step() {
  step_graph_ ? step_graph_->step(*this) : train_step();
}

// After on_backward_begin, which may put another loss in its place.
void Learner::weigh_loss() {
  if (weight_ != 1) state_.loss_grad = state_.loss_grad * weight_;
}

void Learner::complete_gradients() {
  has_gradients_ = true;
  if (state_.accumulating || window_.correction() == 1) return;
  Tensors gradients;
  for (const ModelTensor& p : model_.parameters()) {
    if (p.tensor.grad().defined()) gradients.push_back(p.tensor.grad());
  }
  const torch::NoGradGuard no_grad;
  if (!gradients.empty()) {
    at::_foreach_mul_(gradients, window_.correction());
  }
}

std::vector<NamedGradient> Learner::gradients() {
  TORCH_CHECK(
      has_gradients_,
      "[Learner::gradients] there are no gradients now; call it from a "
      "callback's on_backward_end or on_step.");
  const torch::NoGradGuard no_grad;
  const bool is_partial = state_.skip_step;
  torch::Tensor scale;
  if (is_partial && state_.scaler) {
    scale = state_.scaler->scale(
        torch::ones({}, torch::dtype(torch::kFloat).device(data_.device)));
  }
  if (!is_partial && precision_) precision_->unscale(*this);
  std::vector<NamedGradient> result;
  for (const ModelTensor& p : model_.parameters()) {
    const torch::Tensor stepped =
        masters_ && !is_partial ? masters_->of(p.tensor) : p.tensor;
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

void Learner::step() {
  TrainState& s = state_;
  has_gradients_ = false;
  if (s.skip_step) {
    if (precision_) precision_->abandon(*this, s.skip_zero_grad);
    return;
  }
  if (precision_) {
    s.step_result = precision_->step(*this);
  } else {
    optimizer().step();
    s.step_result = StepResult::stepped;
  }
  run(Event::step_end);
}

void Learner::state_was_replaced() {
  if (step_graph_) step_graph_->forget();
  run(Event::load);
}

void Learner::zero_grad() {
  for (const auto& group : groups_) {
    for (const ModelTensor& parameter : group) {
      parameter.tensor.mutable_grad().reset();
    }
  }
  if (masters_) masters_->zero_grad();
}

// Metrics keep their names, so that a callback can ask for them in an epoch
// whose validation did not come: NaN.
void Learner::forget_validation() {
  state_.valid_loss = std::numeric_limits<double>::quiet_NaN();
  state_.last_metrics.clear();
  if (!data_.valid) return;
  for (const Metric& metric : options_.metrics) {
    state_.last_metrics.push_back({.name = metric.name()});
  }
}

void Learner::validate_after_epoch() {
  Validation validation = evaluate_metrics(Split::valid, /*is_common=*/true);
  // A pass that was stopped in the middle says nothing about the whole set.
  if (state_.stop_training) return;
  state_.valid_loss = validation.loss;
  state_.last_metrics = std::move(validation.metrics);
}

double metric_value(
    const std::vector<MetricValue>& metrics,
    const std::string& name,
    const char* what) {
  std::vector<std::string> names;
  for (const MetricValue& metric : metrics) {
    if (metric.name == name) return metric.value;
    names.push_back(metric.name);
  }
  C10_THROW_ERROR(
      ValueError,
      fmt::format(
          "[{}[\"{}\"]] there is no such metric; {}.",
          what,
          name,
          names.empty()
              ? std::string("there is none: the Learner has no "
                            "metrics or no validation data")
              : fmt::format("there are: {}", fmt::join(names, ", "))));
}

torch::optim::Optimizer& Learner::optimizer() {
  if (!optimizer_) make_optimizer();
  return *optimizer_;
}

void Learner::set_masters(std::shared_ptr<MasterWeights> masters) {
  if (optimizer_) {
    if (masters_) {
      optim::rebind_parameters(
          *optimizer_,
          masters_->masters(),
          masters_->weights());
    }
    if (masters) {
      optim::rebind_parameters(
          *optimizer_,
          masters->weights(),
          masters->masters());
    }
  }
  masters_ = std::move(masters);
}

}  // namespace tern
