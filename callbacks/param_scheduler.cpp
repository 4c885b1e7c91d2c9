#include "tern/callbacks/param_scheduler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

namespace {

constexpr int64_t kLookAhead = 100;

double
value_at(double position, HyperParameter hyper, const Schedule& schedule) {
  const double value = schedule(position);
  TORCH_CHECK_VALUE(
      std::isfinite(value) && value >= 0,
      fmt::format(
          "[ParamScheduler] the schedule of {} gives {} at {} of the fit; "
          "expected a finite number >= 0. Correct the schedule.",
          to_string(hyper),
          value,
          position));
  return value;
}

}  // namespace

ParamScheduler::ParamScheduler(std::vector<Scheduled> scheduled)
    : scheduled_(std::move(scheduled)) {
  for (const Scheduled& s : scheduled_) {
    const bool is_complete =
        !s.schedules.empty() &&
        std::all_of(s.schedules.begin(), s.schedules.end(), [](const auto& f) {
          return static_cast<bool>(f);
        });
    TORCH_CHECK_VALUE(
        is_complete,
        fmt::format(
            "[ParamScheduler] a schedule of {} is missing; give one for all "
            "layer groups or one for each.",
            to_string(s.hyper)));
  }
}

ParamScheduler::ParamScheduler(ForBatches make)
    : ParamScheduler(make(/*batches=*/1)) {
  make_ = std::move(make);
}

bool ParamScheduler::moves(HyperParameter hyper) const {
  return std::any_of(
      scheduled_.begin(),
      scheduled_.end(),
      [&](const Scheduled& s) { return s.hyper == hyper; });
}

void ParamScheduler::on_add(Learner& learn) {
  for (const auto& other : learn.callbacks()) {
    const auto* scheduler = dynamic_cast<ParamScheduler*>(other.get());
    if (!scheduler) continue;
    for (const Scheduled& s : scheduled_) {
      TORCH_CHECK_VALUE(
          !scheduler->moves(s.hyper),
          fmt::format(
              "[ParamScheduler] two schedulers move {}; remove one of them.",
              to_string(s.hyper)));
    }
  }
  check_sets_learning_rate_alone(learn, *this);
}

// The loaders may have been changed for this fit: LimitBatches.
void ParamScheduler::on_train_begin(Learner& learn) {
  done_ = 0;
  total_ = learn.state().epochs * learn.batches_per_epoch();
  if (make_) scheduled_ = make_(total_);
  const auto groups = static_cast<size_t>(learn.layer_groups());
  for (const Scheduled& s : scheduled_) {
    TORCH_CHECK_VALUE(
        s.schedules.size() == 1 || s.schedules.size() == groups,
        fmt::format(
            "[ParamScheduler] {} schedules of {} were given for {} layer "
            "groups; expected one for all or one for each.",
            s.schedules.size(),
            to_string(s.hyper),
            groups));
    // Most wrong schedules are found before hours of training.
    for (int64_t i = 0; i < kLookAhead && total_ > 0; ++i) {
      for (const Schedule& schedule : s.schedules) {
        value_at(static_cast<double>(i) / kLookAhead, s.hyper, schedule);
      }
    }
  }
}

void ParamScheduler::on_batch_begin(Learner& learn) {
  if (!learn.state().training) return;
  const double position =
      static_cast<double>(done_) / static_cast<double>(total_);
  for (const Scheduled& s : scheduled_) {
    std::vector<double> values;
    for (const Schedule& schedule : s.schedules) {
      values.push_back(value_at(position, s.hyper, schedule));
    }
    values.resize(learn.layer_groups(), values[0]);
    learn.set_hyper_parameter(s.hyper, values);
  }
}

void ParamScheduler::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const bool overflowed =
      !state.skip_step && state.step_result == StepResult::skipped;
  if (!overflowed) ++done_;
}

StateDict ParamScheduler::state_dict() const {
  StateDict state;
  state.insert("done", torch::tensor(done_));
  return state;
}

void ParamScheduler::load_state_dict(const StateDict& state) {
  TORCH_CHECK_VALUE(
      state.contains("done"),
      "[ParamScheduler] the state says not how many batches are done; expected "
      "that of a ParamScheduler.");
  done_ = state["done"].item<int64_t>();
}

}  // namespace tern
