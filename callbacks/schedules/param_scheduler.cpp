#include "tern/callbacks/schedules/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <torch/types.h>

#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

namespace schedule {

Schedule constant(double value) {
  return [=](double) { return value; };
}

Schedule linear(double start, double end) {
  return [=](double position) { return start + position * (end - start); };
}

Schedule cosine(double start, double end) {
  return [=](double position) {
    return start + (1 + std::cos(std::numbers::pi * (1 - position))) *
                       (end - start) / 2;
  };
}

Schedule exponential(double start, double end) {
  TERN_CHECK_VALUE(
      start > 0 && end > 0,
      "[schedule::exponential] start is {} and end is {}; expected both > 0.",
      start,
      end);
  return
      [=](double position) { return start * std::pow(end / start, position); };
}

Schedule polynomial(double start, double end, double power) {
  check_positive("schedule::polynomial", "power", power);
  return [=](double position) {
    return start + (end - start) * std::pow(position, power);
  };
}

Schedule phases(std::vector<Phase> phases) {
  double sum = 0;
  for (const Phase& phase : phases) {
    TERN_CHECK_VALUE(
        phase.part > 0 && phase.schedule,
        "[schedule::phases] a phase has part {}{}; expected a part > 0 and "
        "a schedule.",
        phase.part,
        phase.schedule ? "" : " and no schedule");
    sum += phase.part;
  }
  TERN_CHECK_VALUE(
      std::abs(sum - 1) < 1e-9,
      "[schedule::phases] the parts of {} phases add up to {}; expected 1.",
      phases.size(),
      sum);
  return [phases = std::move(phases)](double position) {
    // A step at which a phase begins must not belong to the previous phase just
    // because the sum of the parts was rounded. This tolerance is much smaller
    // than a step and much larger than rounding errors.
    constexpr double kRounding = 1e-12;
    double begin = 0;
    size_t i = 0;
    for (; i + 1 < phases.size() &&
           position >= begin + phases[i].part - kRounding;
         ++i) {
      begin += phases[i].part;
    }
    return phases[i].schedule(
        std::clamp((position - begin) / phases[i].part, 0.0, 1.0));
  };
}

}  // namespace schedule

namespace {

constexpr int64_t kLookAhead = 100;

double
value_at(double position, HyperParameter hyper, const Schedule& schedule) {
  const double value = schedule(position);
  TERN_CHECK_VALUE(
      std::isfinite(value) && value >= 0,
      "[ParamScheduler] the schedule of {} gives {} at {} of the fit; "
      "expected a finite number >= 0. Correct the schedule.",
      to_string(hyper),
      value,
      position);
  return value;
}

}  // namespace

void StartRates::begin(const Learner& learn, std::vector<double> rates) {
  rates_ = std::move(rates);
  of_fit_ = parts_of(learn).position.own_rates;
}

void StartRates::save(StateDict& state) const {
  state.insert("start_rates", torch::tensor(rates_, torch::kDouble));
  state.insert("fit_rates", torch::tensor(of_fit_, torch::kDouble));
}

void StartRates::load(const std::string& owner, const StateDict& state) {
  if (!state.contains("start_rates")) return;
  if (saved_numbers(owner, state, "fit_rates") != of_fit_) return;
  std::vector<double> saved = saved_numbers(owner, state, "start_rates");
  // The optimizer may have gained a group since the fit began.
  if (saved.size() == rates_.size()) rates_ = std::move(saved);
}

ParamScheduler::ParamScheduler(std::vector<Scheduled> scheduled)
    : scheduled_(std::move(scheduled)) {
  for (const Scheduled& s : scheduled_) {
    TERN_CHECK_VALUE(
        !s.schedules.empty() &&
            std::ranges::none_of(s.schedules, std::logical_not<>()),
        "[ParamScheduler] a schedule of {} is missing; give one for all layer "
        "groups or one per group.",
        to_string(s.hyper));
    TERN_CHECK_VALUE(
        !s.is_factor || s.hyper == HyperParameter::lr,
        "[ParamScheduler] is_factor is set for {}; expected it for learning "
        "rates only, since fit takes no other base value. Schedule absolute "
        "values.",
        to_string(s.hyper));
  }
}

ParamScheduler::ParamScheduler(ForBatches make)
    : ParamScheduler(make(/*batches=*/1)) {
  make_ = std::move(make);
}

bool ParamScheduler::sets(HyperParameter hyper) const {
  return std::ranges::count(scheduled_, hyper, &Scheduled::hyper) > 0;
}

void ParamScheduler::on_add(Learner& learn) {
  check_sets_alone(learn, *this);
}

// Computed here because LimitBatches may change the loaders for a fit.
void ParamScheduler::on_train_begin(Learner& learn) {
  const LearnerParts& l = parts_of(learn);
  const TrainState& state = learn.state();
  batches_ = loop::training_loader(parts_of(learn)).size();
  epochs_ = state.epochs;
  total_ = epochs_ * batches_;
  // If added during a fit, it continues from the current position.
  done_ = state.epoch * batches_;
  if (l.position.place == Place::in_epoch) done_ += l.position.batches_done;
  if (l.position.place == Place::at_epoch_end) done_ += batches_;
  if (make_) scheduled_ = make_(total_);
  start_.begin(learn, learn.learning_rates());
  const auto groups = parts_of(learn).groups.parameters.size();
  for (const Scheduled& s : scheduled_) {
    TERN_CHECK_VALUE(
        s.schedules.size() == 1 || s.schedules.size() == groups,
        "[ParamScheduler] got {} schedules of {} for {} layer groups; expected "
        "one for all or one per group.",
        s.schedules.size(),
        to_string(s.hyper),
        groups);
    // Finds most invalid schedules before hours of training.
    for (int64_t i = 0; i < kLookAhead && total_ > 0; ++i) {
      for (const Schedule& schedule : s.schedules) {
        value_at(static_cast<double>(i) / kLookAhead, s.hyper, schedule);
      }
    }
  }
}

// Adding or removing LimitBatches changes the length of a running fit.
void ParamScheduler::follow_length(Learner& learn) {
  const TrainState& state = learn.state();
  if (state.batches == batches_) return;
  batches_ = state.batches;
  total_ = done_ + (epochs_ - state.epoch) * batches_ - state.batch;
  if (make_) scheduled_ = make_(total_);
}

void ParamScheduler::on_batch_begin(Learner& learn) {
  if (!learn.state().training) return;
  follow_length(learn);
  const double position =
      static_cast<double>(done_) / static_cast<double>(total_);
  for (const Scheduled& s : scheduled_) {
    std::vector<double> values;
    values.reserve(parts_of(learn).groups.parameters.size());
    for (const Schedule& schedule : s.schedules) {
      values.push_back(value_at(position, s.hyper, schedule));
    }
    values.resize(parts_of(learn).groups.parameters.size(), values[0]);
    for (size_t i = 0; s.is_factor && i < values.size(); ++i) {
      values[i] *= start_.rates()[i];
    }
    loop::set_hyper_parameter(parts_of(learn), s.hyper, values);
  }
}

void ParamScheduler::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const bool overflowed =
      !state.skip_step && state.step_result == StepResult::skipped;
  if (!overflowed) ++done_;
}

void ParamScheduler::on_train_end(Learner&) {
  start_ = {};
  epochs_ = batches_ = total_ = 0;
}

StateDict ParamScheduler::state_dict() const {
  StateDict state = {
      {"done", torch::tensor(done_, torch::kLong)},
      {"length", torch::tensor({epochs_, batches_, total_}, torch::kLong)}};
  start_.save(state);
  return state;
}

void ParamScheduler::load_state_dict(const StateDict& state) {
  start_.load("ParamScheduler", state);
  done_ = saved_value("ParamScheduler", state, "done").item<int64_t>();
  const torch::Tensor* const length = state.find("length");
  if (!length || length->numel() != 3) return;  // an older checkpoint
  const auto saved = [&](int64_t i) { return (*length)[i].item<int64_t>(); };
  // A fit that was resumed with a different number of epochs has a new length.
  if (saved(0) != epochs_) return;
  batches_ = saved(1);
  total_ = saved(2);
  if (make_ && total_ > 0) scheduled_ = make_(total_);
}

TorchScheduler::TorchScheduler(Factory factory, Options options)
    : factory_(std::move(factory)), options_(options) {
  TORCH_CHECK_VALUE(
      factory_,
      "[TorchScheduler] the factory is empty; give a function that creates a "
      "scheduler for the optimizer.");
}

void TorchScheduler::on_add(Learner& learn) {
  check_sets_alone(learn, *this);
}

void TorchScheduler::on_train_begin(Learner& learn) {
  optimizer_ = &learn.optimizer();
  start_.begin(learn, rates());
  make();
}

// The first `step` sets the initial state. Python's constructor calls it but
// LibTorch's does not; without it, LibTorch's schedules would be one epoch
// late.
void TorchScheduler::make() {
  scheduler_ = factory_(*optimizer_);
  TORCH_CHECK_VALUE(
      scheduler_,
      "[TorchScheduler] the factory returned no scheduler; expected a "
      "scheduler for the optimizer passed to it.");
  scheduler_->step();
  advances_ = 0;
}

void TorchScheduler::advance() {
  scheduler_->step();
  ++advances_;
}

void TorchScheduler::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!options_.per_batch || !state.training) return;
  const bool stepped =
      !state.skip_step && state.step_result != StepResult::skipped;
  if (stepped) advance();
}

void TorchScheduler::on_epoch_end(Learner&) {
  if (!options_.per_batch) advance();
}

void TorchScheduler::on_train_end(Learner&) {
  start_ = {};
  scheduler_.reset();
  optimizer_ = nullptr;
}

StateDict TorchScheduler::state_dict() const {
  StateDict state = {{"advances", torch::tensor(advances_, torch::kLong)}};
  start_.save(state);
  return state;
}

// LibTorch's schedulers cannot be saved, so this replays their steps from the
// fit's first learning rates, with bit-identical results. Learning rates
// restored with the optimizer's state take precedence, since a callback may
// have changed them. If the optimizer has the fit's first learning rates, as
// after resuming with different learning rates, the schedule's values apply.
void TorchScheduler::load_state_dict(const StateDict& state) {
  const int64_t advances =
      saved_value("TorchScheduler", state, "advances").item<int64_t>();
  if (!scheduler_) {
    advances_ = advances;
    return;
  }
  scheduler_.reset();
  start_.load("TorchScheduler", state);
  const std::vector<double> restored = rates();
  set_rates(start_.rates());
  make();
  while (advances_ < advances) advance();
  if (restored != start_.rates()) set_rates(restored);
}

std::vector<double> TorchScheduler::rates() const {
  std::vector<double> result;
  for (const auto& group : optimizer_->param_groups()) {
    result.push_back(group.options().get_lr());
  }
  return result;
}

void TorchScheduler::set_rates(const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i) {
    optimizer_->param_groups()[i].options().set_lr(rates[i]);
  }
}

OptionValues TorchScheduler::option_values() const {
  return {{"per_batch", option_text(options_.per_batch)}};
}

}  // namespace tern
