// A Learner from its data, its model and its callbacks, and how these come and
// go.

#include <algorithm>
#include <cmath>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/logging/progress_printer.h"
#include "tern/data/memory.h"
#include "tern/kernels/check.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"

namespace tern {

Learner::Learner(DataBunch data, Model model, LearnerOptions options)
    : parts_(std::make_unique<LearnerParts>(
          std::move(data),
          std::move(model),
          std::move(options))) {
  parts_->self = this;
  if (!parts_->options.sink) parts_->options.sink = terminal();
  TERN_CHECK_VALUE(
      parts_->options.lr >= 0 && std::isfinite(parts_->options.lr) &&
          parts_->options.weight_decay >= 0 &&
          std::isfinite(parts_->options.weight_decay),
      "[Learner] lr is {} and weight_decay is {}; expected finite numbers "
      ">= 0.",
      parts_->options.lr,
      parts_->options.weight_decay);
  if (parts_->options.seed) torch::manual_seed(parts_->options.seed);
  if (parts_->data.device.is_cpu()) keep_freed_memory();
  for (const BatchTransform& transform : parts_->data.batch_transforms) {
    TORCH_CHECK_VALUE(
        transform,
        "[Learner] an entry of DataBunch::batch_transforms is an empty "
        "function; leave it out.");
  }
  check_device_exists(
      "Learner",
      parts_->data.device,
      "set DataBunch::device to one that is there, or to the CPU");
  parts_->model.to(parts_->data.device);
  parts_->groups = {parts_->model.parameters()};
  TORCH_CHECK_VALUE(
      !parts_->groups[0].empty(),
      "[Learner] the model has no parameters; expected something to train.");
  for (Metric& metric : parts_->options.metrics) metric = metric.fresh_copy();
  add(parts_->recorder);
  add<ProgressPrinter>();
  for (const auto& callback : parts_->options.callbacks) add(callback);
}

Learner& Learner::add(CallbackHandle callback) {
  TORCH_CHECK_VALUE(
      static_cast<bool>(callback),
      "[Learner::add] the callback is null; give a callback.");
  TORCH_CHECK_VALUE(
      std::find(parts_->callbacks.begin(), parts_->callbacks.end(), callback) ==
          parts_->callbacks.end(),
      "[Learner::add] this callback was added already; add it once.");
  callback->on_add(*this);
  if (auto* const policy = dynamic_cast<PrecisionPolicy*>(callback.get())) {
    parts_->precision = policy;
  }
  const auto after = std::upper_bound(
      parts_->callbacks.begin(),
      parts_->callbacks.end(),
      callback,
      [](const auto& a, const auto& b) { return a->order() < b->order(); });
  parts_->callbacks.insert(after, std::move(callback));
  if (parts_->step_runner) parts_->step_runner->forget();
  return *this;
}

Learner& Learner::remove(const Callback& callback) {
  TORCH_CHECK_VALUE(
      &callback != parts_->recorder.get(),
      "[Learner::remove] the Recorder cannot be removed: other callbacks read "
      "what it measures. For a Learner that prints nothing set .sink = "
      "silent().");
  const auto at = std::find_if(
      parts_->callbacks.begin(),
      parts_->callbacks.end(),
      [&](const auto& other) { return other.get() == &callback; });
  if (at == parts_->callbacks.end()) return *this;
  const CallbackHandle removed = *at;
  parts_->callbacks.erase(at);
  if (parts_->running_callback) parts_->removed_callbacks.push_back(removed);
  removed->on_remove(*this);
  auto* const policy = dynamic_cast<PrecisionPolicy*>(removed.get());
  if (policy && policy == parts_->precision) parts_->precision = nullptr;
  if (parts_->step_runner) parts_->step_runner->forget();
  return *this;
}

}  // namespace tern
