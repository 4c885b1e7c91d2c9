#include "tern/callbacks/prune_trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// Any number is better than NaN; NaN is never better.
bool beats(double value, double best, bool higher_is_better) {
  if (std::isnan(value) || std::isnan(best)) return !std::isnan(value);
  return higher_is_better ? value > best : value < best;
}

// NaN if no value is a number.
double best_of(const std::vector<double>& values, bool higher_is_better) {
  double best = std::nan("");
  for (const double value : values) {
    if (beats(value, best, higher_is_better)) best = value;
  }
  return best;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

}  // namespace

const Study::Trial* Study::best() const {
  const Trial* found = nullptr;
  double best = std::nan("");
  for (const Trial& trial : trials_) {
    if (trial.result != FitResult::completed) continue;
    const double value = best_of(trial.values, higher_is_better_);
    if (!beats(value, best, higher_is_better_)) continue;
    best = value;
    found = &trial;
  }
  return found;
}

std::string Study::to_string() const {
  size_t width = 5;
  for (const Trial& trial : trials_) width = std::max(width, trial.name.size());
  const std::string column = "best " + monitored_;
  std::string text =
      fmt::format("{:<{}}  epochs  {}  result\n", "trial", width, column);
  for (const Trial& trial : trials_) {
    text += fmt::format(
        "{:<{}}  {:>6}  {:>{}.6f}  {}\n",
        trial.name,
        width,
        trial.values.size(),
        best_of(trial.values, higher_is_better_),
        column.size(),
        tern::to_string(trial.result));
  }
  return text;
}

PruneTrial::PruneTrial(Options options)
    : options_(std::move(options)),
      monitor_(
          "PruneTrial",
          options_.monitor,
          /*min_delta=*/0,
          options_.mode,
          /*reset_on_fit=*/false) {
  TORCH_CHECK_VALUE(
      options_.study,
      "[PruneTrial] there is no study; expected a study that all trials of the "
      "search share: auto study = std::make_shared<tern::Study>().");
  check_at_least("PruneTrial", "startup_trials", options_.startup_trials, 0);
  check_at_least("PruneTrial", "warmup_epochs", options_.warmup_epochs, 0);
}

void PruneTrial::on_add(Learner& learn) {
  check_only_one(
      learn.find<PruneTrial>(),
      *this,
      "both would be the trial of this Learner");
}

// Also called by load_state_dict before a fit, for trials that are complete.
Study::Trial& PruneTrial::trial() {
  auto& trials = options_.study->trials_;
  if (number_ < 0) {
    number_ = std::ssize(trials);
    Study::Trial begun;
    begun.name =
        options_.name.empty() ? std::to_string(number_) : options_.name;
    trials.push_back(std::move(begun));
  }
  return trials[number_];
}

void PruneTrial::on_train_begin(Learner& learn) {
  const LearnerParts* const learner = &parts_of(learn);
  TORCH_CHECK_VALUE(
      !learner_ || learner_ == learner,
      "[PruneTrial] it was already used in another Learner; expected one "
      "PruneTrial per trial. Add a new one with the same study.");
  monitor_.begin(learn);
  Study& study = *options_.study;
  TERN_CHECK_VALUE(
      study.monitored_.empty() ||
          (study.monitored_ == options_.monitor &&
           study.higher_is_better_ == monitor_.higher_is_better()),
      "[PruneTrial] it monitors \"{}\", where {} is better, but earlier trials "
      "of the study monitor \"{}\", where {} is better; expected the same "
      "monitor.",
      options_.monitor,
      monitor_.higher_is_better() ? "higher" : "lower",
      study.monitored_,
      study.higher_is_better_ ? "higher" : "lower");
  study.monitored_ = options_.monitor;
  study.higher_is_better_ = monitor_.higher_is_better();
  learner_ = learner;
  has_diverged_ = false;
  trial().result = FitResult::interrupted;
}

void PruneTrial::on_epoch_end(Learner& learn) {
  TrainState& state = learn.state();
  look_for_nan(learn);  // before the epoch's checkpoint, which stores it
  std::string why;
  bool is_over = false;
  // The values of an interrupted epoch are incomplete.
  if (!state.stop_training) {
    trial().values.push_back(monitor_.value(learn));
    const bool is_last = state.epoch + 1 == state.epochs ||
                         parts_of(learn).position.data_have_ended;
    is_over = !is_last && is_worse(why);
  }
  // Ranks may know different trials, but must end together.
  if (!loop::first_rank_where(parts_of(learn), is_over)) return;
  learn.options().sink->line(fmt::format(
      "PruneTrial: {}; the trial stops.",
      is_over ? why : "another rank has better trials"));
  state.stop_training = true;
  state.result = FitResult::pruned;
}

bool PruneTrial::is_worse(std::string& why) {
  const std::vector<double>& own = trial().values;
  const auto epoch = own.size() - 1;
  if (std::ssize(own) <= options_.warmup_epochs) return false;
  int64_t complete = 0;
  std::vector<double> others;
  for (const Study::Trial& other : options_.study->trials_) {
    if (&other == &trial() || other.result != FitResult::completed) continue;
    ++complete;
    if (epoch < other.values.size() && !std::isnan(other.values[epoch])) {
      others.push_back(other.values[epoch]);
    }
  }
  if (complete < options_.startup_trials || others.empty()) return false;
  const bool higher = monitor_.higher_is_better();
  const double best = best_of(own, higher);
  const auto count = others.size();
  const double median = median_of(std::move(others));
  why = std::isnan(best)
            ? fmt::format("{} was NaN in every epoch", options_.monitor)
            : fmt::format(
                  "{} was at best {:.6f} after {} epoch{}, worse than the "
                  "median {:.6f} of {} earlier trial{}",
                  options_.monitor,
                  best,
                  own.size(),
                  own.size() == 1 ? "" : "s",
                  median,
                  count,
                  count == 1 ? "" : "s");
  return std::isnan(best) || (higher ? best < median : best > median);
}

// On any rank.
void PruneTrial::look_for_nan(Learner& learn) {
  const auto check = learn.find<TerminateOnNaN>();
  const bool has_found = has_diverged_ || (check && check->found());
  has_diverged_ =
      loop::first_rank_where(parts_of(learn), has_found).has_value();
}

void PruneTrial::on_train_end(Learner& learn) {
  if (learn.state().is_removal || number_ < 0) return;
  trial().result = learn.state().result;
  if (trial().result != FitResult::completed) return;
  look_for_nan(learn);
  if (has_diverged_) trial().result = FitResult::failed;
}

StateDict PruneTrial::state_dict() const {
  StateDict state;
  if (number_ < 0) return state;
  const Study::Trial& trial = options_.study->trials_[number_];
  state.insert("values", torch::tensor(trial.values, torch::kDouble));
  state.insert(
      "result",
      torch::scalar_tensor(static_cast<int64_t>(trial.result), torch::kLong));
  state.insert(
      "higher_is_better",
      torch::scalar_tensor(monitor_.higher_is_better() ? 1 : 0, torch::kLong));
  state.insert(
      "diverged",
      torch::scalar_tensor(has_diverged_ ? 1 : 0, torch::kLong));
  monitor_.save(state);
  return state;
}

void PruneTrial::load_state_dict(const StateDict& state) {
  if (state.is_empty()) {
    if (number_ >= 0) trial().values.clear();
    return;
  }
  trial().values = saved_numbers("PruneTrial", state, "values");
  const auto result =
      saved_value("PruneTrial", state, "result").item<int64_t>();
  TERN_CHECK_VALUE(
      result >= 0 && result <= static_cast<int64_t>(FitResult::pruned),
      "[PruneTrial] the saved \"result\" is {}; expected the result of a fit.",
      result);
  trial().result = static_cast<FitResult>(result);
  const torch::Tensor* const diverged = state.find("diverged");
  has_diverged_ = diverged && diverged->item<int64_t>() != 0;
  // A complete fit does not begin again, so on_train_begin will not set these.
  options_.study->monitored_ = options_.monitor;
  options_.study->higher_is_better_ =
      saved_value("PruneTrial", state, "higher_is_better").item<int64_t>() != 0;
  monitor_.load(state);
}

OptionValues PruneTrial::option_values() const {
  return {
      {"name", option_text(options_.name)},
      {"monitor", option_text(options_.monitor)},
      {"mode", option_text(options_.mode)},
      {"startup_trials", option_text(options_.startup_trials)},
      {"warmup_epochs", option_text(options_.warmup_epochs)}};
}

}  // namespace tern
