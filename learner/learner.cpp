// Construction of a Learner, its callbacks, hyperparameters and gradients.
// Other methods are defined in the folder of their subject, for example
// to_fp16() in callbacks/precision/.

#include "tern/learner/learner.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>
#include <torch/optim/rmsprop.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/kernels/check.h"
#include "tern/kernels/fast_conv_backward.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/loop.h"
#include "tern/learner/progress_printer.h"
#include "tern/learner/recorder.h"

namespace tern {

// ---- Construction ----

LearnerParts::LearnerParts(DataBunch data, Model model, LearnerOptions options)
    : data(std::move(data)),
      model(std::move(model)),
      options(std::move(options)),
      recorder(std::make_shared<Recorder>()) {}

LearnerParts::~LearnerParts() {
  const bool is_cpu = data.device.is_cpu();
  optimizer.reset();
  stepped_weights.reset();
  if (is_cpu) give_back_unused_memory(torch::kCPU);
}

Learner::Learner(DataBunch data, Model model, LearnerOptions options)
    : parts_(std::make_unique<LearnerParts>(
          std::move(data),
          std::move(model),
          std::move(options))) {
  parts_->self = this;
  parts_->options.sink = parts_->options.sink.or_terminal();
  TERN_CHECK_VALUE(
      parts_->options.lr >= 0 && std::isfinite(parts_->options.lr) &&
          parts_->options.weight_decay >= 0 &&
          std::isfinite(parts_->options.weight_decay),
      "[Learner] lr is {} and weight_decay is {}; expected finite numbers "
      ">= 0.",
      parts_->options.lr,
      parts_->options.weight_decay);
  if (parts_->options.seed) torch::manual_seed(parts_->options.seed);
  if (parts_->data.device.is_cpu()) {
    keep_freed_memory();
    FastConvBackward::prepare();
  }
  for (const BatchTransform& transform : parts_->data.batch_transforms) {
    TORCH_CHECK_VALUE(
        transform,
        "[Learner] an entry of DataBunch::batch_transforms is an empty "
        "function; remove it.");
  }
  check_device_exists(
      "Learner",
      parts_->data.device,
      "set DataBunch::device to an existing device, or to the CPU");
  parts_->model.to(parts_->data.device);
  parts_->groups.parameters = {parts_->model.parameters()};
  TORCH_CHECK_VALUE(
      !parts_->groups.parameters[0].empty(),
      "[Learner] the model has no parameters; expected at least one parameter "
      "to train.");
  const FixedModes modes = parts_->model.fixed_modes();
  if (!modes.training.empty()) {
    parts_->options.sink->warning(fmt::format(
        "the TorchScript module keeps {} in training mode even in evaluation, "
        "because it was traced in that mode. Trace it after eval(), or save it "
        "with torch.jit.script.",
        fmt::join(modes.training, " and ")));
  }
  for (Metric& metric : parts_->options.metrics) metric = metric.fresh_copy();
  add(parts_->recorder);
  add<ProgressPrinter>();
  for (const auto& callback : parts_->options.callbacks) add(callback);
}

Learner::~Learner() = default;

Learner::Learner(Learner&& other) noexcept : parts_(std::move(other.parts_)) {
  parts_->self = this;
}

Learner& Learner::operator=(Learner&& other) noexcept {
  parts_ = std::move(other.parts_);
  parts_->self = this;
  return *this;
}

// ---- Callbacks ----

namespace {

// The gradients of a step keep the dtype and the loss scale with which the step
// began.
void check_between_steps(
    const LearnerParts& l,
    const char* call,
    const Callback& callback) {
  if (!dynamic_cast<const PrecisionPolicy*>(&callback)) return;
  TERN_CHECK_VALUE(
      !l.step.is_running && !l.step.window.is_open(),
      "[Learner::{}] {} would change the precision in the middle of a step; {} "
      "it in on_epoch_begin, on_epoch_end, or in on_batch_end while "
      "state().accumulating is false.",
      call,
      callback.name(),
      call);
}

}  // namespace

Learner& Learner::add(CallbackHandle callback) {
  TORCH_CHECK_VALUE(
      static_cast<bool>(callback),
      "[Learner::add] the callback is null; expected a callback.");
  TORCH_CHECK_VALUE(
      std::find(
          parts_->callbacks.all.begin(),
          parts_->callbacks.all.end(),
          callback) == parts_->callbacks.all.end(),
      "[Learner::add] this callback is already added; expected each callback "
      "only once.");
  check_between_steps(*parts_, "add", *callback);
  callback->on_add(*this);
  if (auto* const policy = dynamic_cast<PrecisionPolicy*>(callback.get())) {
    parts_->precision = policy;
  }
  const auto after = std::upper_bound(
      parts_->callbacks.all.begin(),
      parts_->callbacks.all.end(),
      callback,
      [](const auto& a, const auto& b) { return a->order() < b->order(); });
  // A copy, because the callback may add other callbacks, which moves the
  // handles.
  const CallbackHandle added = callback;
  parts_->callbacks.all.insert(after, std::move(callback));
  if (parts_->step.runner) parts_->step.runner->forget();
  try {
    loop::begin_late(*parts_, added);
  } catch (...) {
    remove(*added);
    throw;
  }
  return *this;
}

Learner& Learner::remove(const Callback& callback) {
  TORCH_CHECK_VALUE(
      &callback != parts_->recorder.get(),
      "[Learner::remove] the Recorder cannot be removed: other callbacks read "
      "what it measures. To print nothing, set .sink = silent().");
  const auto at = std::find_if(
      parts_->callbacks.all.begin(),
      parts_->callbacks.all.end(),
      [&](const auto& other) { return other.get() == &callback; });
  if (at == parts_->callbacks.all.end()) return *this;
  check_between_steps(*parts_, "remove", callback);
  const CallbackHandle removed = *at;
  const auto place = at - parts_->callbacks.all.begin();
  parts_->callbacks.all.erase(at);
  if (parts_->callbacks.running) parts_->callbacks.removed.push_back(removed);
  try {
    removed->on_remove(*this);
  } catch (...) {  // the callback rejects its removal
    parts_->callbacks.all.insert(
        parts_->callbacks.all.begin() + place,
        removed);
    throw;
  }
  auto* const policy = dynamic_cast<PrecisionPolicy*>(removed.get());
  if (policy && policy == parts_->precision) parts_->precision = nullptr;
  if (parts_->step.runner) parts_->step.runner->forget();
  loop::end_early(*parts_, removed);
  return *this;
}

// ---- Hyperparameters and gradients ----

std::vector<double> LearnerParts::resolve(const LearningRates& lr) const {
  if (lr.empty() && !groups.own_lr.empty()) return groups.own_lr;
  return lr.resolve(groups.size(), options.lr);
}

namespace {

// LibTorch's RMSprop creates these buffers only in its first step, and only if
// it has a momentum at that time.
void make_momentum_buffers(
    torch::optim::Optimizer& optimizer,
    const torch::optim::OptimizerParamGroup& group) {
  const auto* const options =
      dynamic_cast<const torch::optim::RMSpropOptions*>(&group.options());
  if (!options || options->momentum() == 0) return;
  for (const torch::Tensor& param : group.params()) {
    const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    auto& state = static_cast<torch::optim::RMSpropParamState&>(*found->second);
    if (!state.momentum_buffer().defined()) {
      state.momentum_buffer(torch::zeros_like(param));
    }
  }
}

}  // namespace

void loop::set_hyper_parameter(
    LearnerParts& l,
    HyperParameter hyper,
    const std::vector<double>& values) {
  TERN_CHECK_VALUE(
      values.size() == l.groups.parameters.size(),
      "[set_hyper_parameter] got {} values of {} for {} layer groups; expected "
      "one per group.",
      values.size(),
      to_string(hyper),
      l.groups.parameters.size());
  auto& param_groups = l.self->optimizer().param_groups();
  for (size_t i = 0; i < param_groups.size(); ++i) {
    const ParamGroupKind& kind = l.groups.param_group_kinds[i];
    const double value = values[kind.layer_group];
    torch::optim::OptimizerOptions& options = param_groups[i].options();
    switch (hyper) {
      case HyperParameter::lr:
        options.set_lr(value);
        break;
      case HyperParameter::momentum:
        optim::set_momentum(options, value);
        make_momentum_buffers(*l.optimizer, param_groups[i]);
        break;
      case HyperParameter::weight_decay:
        optim::set_weight_decay(options, kind.spares_decay ? 0 : value);
        break;
    }
  }
}

void Learner::set_learning_rates(const LearningRates& lr) {
  loop::set_hyper_parameter(*parts_, HyperParameter::lr, parts_->resolve(lr));
}

std::vector<NamedGradient> Learner::gradients() {
  TORCH_CHECK(
      parts_->step.has_gradients,
      "[Learner::gradients] there are no gradients now; call gradients() from "
      "a callback's on_backward_end or on_step.");
  const torch::NoGradGuard no_grad;
  // If this batch has no optimizer step, the caller receives copies, and the
  // gradients keep their loss scale, because the next batch may add to them.
  const bool is_partial = parts_->state.skip_step;
  const bool is_scaled = is_partial && !parts_->step.detached_gradients.empty();
  torch::Tensor scale;
  if (is_scaled) scale = parts_->precision->loss_scale_record()[0];
  if (is_scaled) loop::attach_scaled_gradients(*parts_);
  if (!is_partial) loop::unscale_gradients(*parts_);
  std::vector<NamedGradient> result;
  for (const ModelTensor& p : parts_->model.parameters()) {
    const torch::Tensor stepped = parts_->stepped_weights
                                      ? parts_->stepped_weights->of(p.tensor)
                                      : p.tensor;
    torch::Tensor gradient = stepped.grad();
    if (!gradient.defined() && is_partial) gradient = p.tensor.grad();
    if (!gradient.defined()) continue;
    if (is_partial) {
      gradient = gradient.to(torch::kFloat, false, /*copy=*/true);
      if (scale.defined()) gradient /= scale.to(gradient.device());
    }
    result.push_back({p.name, gradient});
  }
  if (is_scaled) loop::detach_scaled_gradients(*parts_);
  return result;
}

// ---- Access to the parts ----

const Callbacks& Learner::callbacks() const {
  return parts_->callbacks.all;
}
TrainState& Learner::state() {
  return parts_->state;
}
Recorder& Learner::recorder() {
  return *parts_->recorder;
}
Model& Learner::model() {
  return parts_->model;
}
DataBunch& Learner::data() {
  return parts_->data;
}
const LearnerOptions& Learner::options() const {
  return parts_->options;
}
LearnerParts& parts_of(const Learner& learner) {
  return *learner.parts_;
}

void Learner::request_stop() {
  // Several ranks must first agree, which they do between steps.
  StopRequest& stop = parts_->stop;
  (parts_->ranks.communicator ? stop.requested_here : stop.requested) = true;
}

void LearnerParts::record_call(const std::string& call) {
  // A resumed program repeats calls that its checkpoint has already recorded.
  // Calls by callbacks are part of the fit.
  if (position.continuation || state.is_fitting) return;
  recorder->add_call(
      position.caller == "fit" ? call : position.caller + ": " + call);
}

}  // namespace tern
