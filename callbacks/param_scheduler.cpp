#include "tern/callbacks/param_scheduler.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

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

bool ParamScheduler::moves(HyperParameter hyper) const {
  return std::any_of(
      scheduled_.begin(),
      scheduled_.end(),
      [&](const Scheduled& s) { return s.hyper == hyper; });
}

void ParamScheduler::on_add(const Learner& learn) {
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

void ParamScheduler::on_train_begin(Learner& learn) {
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
  }
  done_ = 0;
  total_ = learn.state().epochs * learn.data().loader(Split::train).size();
}

void ParamScheduler::on_batch_begin(Learner& learn) {
  if (!learn.state().training) return;
  const double position =
      static_cast<double>(done_) / static_cast<double>(total_);
  for (const Scheduled& s : scheduled_) {
    std::vector<double> values;
    for (const Schedule& schedule : s.schedules) {
      values.push_back(schedule(position));
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
