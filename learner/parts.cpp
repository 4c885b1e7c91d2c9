// What a Learner is made of, and who has it.

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/memory.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/loop.h"
#include "tern/learner/recorder.h"

namespace tern {

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

void LearnerParts::note_call(const std::string& call) {
  // A program that goes on repeats the calls that its checkpoint knows; what a
  // callback calls is part of the fit.
  if (continuation || state.is_fitting) return;
  recorder->add_call(caller == "fit" ? call : caller + ": " + call);
}

std::vector<double> LearnerParts::resolve(const LearningRates& lr) const {
  if (lr.empty() && !own_lr.empty()) return own_lr;
  return lr.resolve(layer_groups(), options.lr);
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

void Learner::request_stop() {
  (parts_->communicator ? parts_->stop_wanted : parts_->stop_requested) = true;
}

void loop::set_hyper_parameter(
    LearnerParts& l,
    HyperParameter hyper,
    const std::vector<double>& values) {
  TERN_CHECK_VALUE(
      values.size() == l.groups.size(),
      "[set_hyper_parameter] {} values of {} were given for {} "
      "layer groups; expected one for each.",
      values.size(),
      to_string(hyper),
      l.groups.size());
  auto& param_groups = l.self->optimizer().param_groups();
  for (size_t i = 0; i < param_groups.size(); ++i) {
    const ParamGroupKind& kind = l.param_group_kinds[i];
    const double value = values[kind.layer_group];
    torch::optim::OptimizerOptions& options = param_groups[i].options();
    switch (hyper) {
      case HyperParameter::lr:
        options.set_lr(value);
        break;
      case HyperParameter::momentum:
        optim::set_momentum(options, value);
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

const Callbacks& Learner::callbacks() const {
  return parts_->callbacks;
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
LearnerParts& Learner::parts() const {
  return *parts_;
}

}  // namespace tern
