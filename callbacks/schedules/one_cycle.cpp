#include "tern/callbacks/schedules/one_cycle.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

using Schedules = std::vector<Schedule>;

void check(
    bool is_good,
    const char* where,
    const char* name,
    double value,
    const char* expected) {
  TORCH_CHECK_VALUE(
      is_good,
      fmt::format(
          "[Learner::{}] {} is {}; expected {}.",
          where,
          name,
          value,
          expected));
}

void check_positive(const char* where, const char* name, double value) {
  const bool is_good = std::isfinite(value) && value > 0;
  check(is_good, where, name, value, "a finite number > 0");
}

void check_part(const char* where, double value) {
  const bool is_good = value > 0 && value <= 1;
  check(is_good, where, "pct_start", value, "a part of 1, in (0, 1]");
}

void check_epochs(const char* name, int64_t epochs) {
  const auto value = static_cast<double>(epochs);
  check(epochs >= 0, "fine_tune", name, value, "0 or more");
}

template <class MakeSchedule>
Schedules for_each_rate(
    const std::vector<double>& rates,
    const MakeSchedule& make) {
  Schedules schedules;
  for (const double rate : rates) schedules.push_back(make(rate));
  return schedules;
}

// The part that ends on a whole step, the first one at least.
double in_whole_steps(double part, int64_t batches) {
  const double steps = std::max(1.0, static_cast<double>(batches));
  return std::max(1.0, std::floor(part * steps)) / steps;
}

// More than a count of batches can be trusted with.
constexpr int64_t kMostEpochs = 1'000'000'000'000;

// The epochs of each cycle.
std::vector<int64_t>
cycle_lengths(int64_t cycles, int64_t cycle_epochs, int64_t cycle_mult) {
  std::vector<int64_t> lengths;
  int64_t sum = 0;
  for (int64_t next = cycle_epochs, i = 0; i < cycles; ++i) {
    const char* const culprit = i == 0                     ? "cycle_epochs"
                                : i == 1 && cycle_mult > 1 ? "cycle_mult"
                                                           : "cycles";
    TORCH_CHECK_VALUE(
        next <= kMostEpochs - sum,
        fmt::format(
            "[Learner::fit_sgdr] {} is too large: cycles is {}, cycle_epochs "
            "{} and cycle_mult {}; expected at most {} epochs, which cycle {} "
            "exceeds. Choose a smaller {}.",
            culprit,
            cycles,
            cycle_epochs,
            cycle_mult,
            kMostEpochs,
            i + 1,
            culprit));
    lengths.push_back(next);
    sum += next;
    // The check of the next cycle finds what is cut off here.
    next = next > kMostEpochs / cycle_mult ? kMostEpochs : next * cycle_mult;
  }
  return lengths;
}

// The options with the learning rates that were given before them.
template <class Options>
Options with_rates(
    const char* where,
    Options options,
    LearningRates Options::*field,
    const char* name,
    LearningRates rates) {
  TORCH_CHECK_VALUE(
      (options.*field).empty(),
      fmt::format(
          "[Learner::{}] the learning rates were given twice, as an argument "
          "and as options.{}; leave one of them out.",
          where,
          name));
  options.*field = std::move(rates);
  return options;
}

Callbacks scheduler(std::vector<ParamScheduler::Scheduled> scheduled) {
  return {std::make_shared<ParamScheduler>(std::move(scheduled))};
}

}  // namespace

Learner& Learner::fit_one_cycle(int64_t epochs, LearningRates max_lr) {
  return fit_one_cycle(epochs, {.max_lr = std::move(max_lr)});
}

Learner& Learner::fit_one_cycle(
    int64_t epochs,
    LearningRates max_lr,
    const OneCycleOptions& options) {
  return fit_one_cycle(
      epochs,
      with_rates(
          "fit_one_cycle",
          options,
          &OneCycleOptions::max_lr,
          "max_lr",
          std::move(max_lr)));
}

Learner& Learner::fit_one_cycle(
    int64_t epochs,
    const OneCycleOptions& options) {
  check_positive("fit_one_cycle", "div", options.div);
  check_positive("fit_one_cycle", "div_final", options.div_final);
  check_part("fit_one_cycle", options.pct_start);
  const LearningRates& max_lr = options.max_lr;
  const std::vector<double> rates =
      max_lr.resolve(layer_groups(), parts_->options.lr);
  const auto one_cycle =
      [=,
       moves_momentum = optim::has_momentum(
           optimizer().param_groups().at(0).options())](int64_t batches) {
        const double part = options.whole_steps
                                ? in_whole_steps(options.pct_start, batches)
                                : options.pct_start;
        std::vector<ParamScheduler::Scheduled> scheduled = {
            {HyperParameter::lr, for_each_rate(rates, [&](double rate) {
               return schedule::combined_cosine(
                   part,
                   rate / options.div,
                   rate,
                   rate / options.div_final);
             })}};
        if (moves_momentum) {
          const auto& moms = options.moms;
          scheduled.push_back(
              {HyperParameter::momentum,
               {schedule::combined_cosine(part, moms[0], moms[1], moms[2])}});
        }
        return scheduled;
      };
  return fit(epochs, max_lr, {std::make_shared<ParamScheduler>(one_cycle)});
}

Learner& Learner::fine_tune(int64_t epochs) {
  return fine_tune(epochs, FineTuneOptions{});
}

Learner& Learner::fine_tune(int64_t epochs, const FineTuneOptions& options) {
  check_positive("fine_tune", "base_lr", options.base_lr);
  check_positive("fine_tune", "lr_mult", options.lr_mult);
  check_positive("fine_tune", "div", options.div);
  check_part("fine_tune", options.pct_start);
  check_epochs("epochs", epochs);
  check_epochs("freeze_epochs", options.freeze_epochs);
  TORCH_CHECK(
      !parts_->is_fitting,
      "[Learner::fine_tune] this Learner is training already; call fine_tune "
      "after the running fit has returned.");
  freeze();
  fit_one_cycle(
      options.freeze_epochs,
      {.max_lr = LearningRates::up_to(options.base_lr), .pct_start = 0.99});
  // A stop that was asked for means all of it.
  if (parts_->state.result == FitResult::interrupted) return *this;
  unfreeze();
  const double base = options.base_lr / 2;
  return fit_one_cycle(
      epochs,
      {.max_lr = {base / options.lr_mult, base},
       .div = options.div,
       .pct_start = options.pct_start});
}

Learner& Learner::fit_flat_cos(int64_t epochs, LearningRates lr) {
  return fit_flat_cos(epochs, {.lr = std::move(lr)});
}

Learner& Learner::fit_flat_cos(
    int64_t epochs,
    LearningRates lr,
    const FlatCosOptions& options) {
  return fit_flat_cos(
      epochs,
      with_rates(
          "fit_flat_cos",
          options,
          &FlatCosOptions::lr,
          "lr",
          std::move(lr)));
}

Learner& Learner::fit_flat_cos(int64_t epochs, const FlatCosOptions& options) {
  const LearningRates& lr = options.lr;
  check_positive("fit_flat_cos", "div_final", options.div_final);
  check_part("fit_flat_cos", options.pct_start);
  const std::vector<double> rates =
      lr.resolve(layer_groups(), parts_->options.lr);
  const auto schedules = for_each_rate(rates, [&](double rate) {
    if (options.pct_start == 1) return schedule::constant(rate);
    return schedule::phases(
        {{options.pct_start, schedule::constant(rate)},
         {1 - options.pct_start,
          schedule::cosine(rate, rate / options.div_final)}});
  });
  return fit(epochs, lr, scheduler({{HyperParameter::lr, schedules}}));
}

Learner&
Learner::fit_sgdr(int64_t cycles, int64_t cycle_epochs, LearningRates max_lr) {
  return fit_sgdr(cycles, cycle_epochs, {.max_lr = std::move(max_lr)});
}

Learner& Learner::fit_sgdr(
    int64_t cycles,
    int64_t cycle_epochs,
    LearningRates max_lr,
    const SgdrOptions& options) {
  return fit_sgdr(
      cycles,
      cycle_epochs,
      with_rates(
          "fit_sgdr",
          options,
          &SgdrOptions::max_lr,
          "max_lr",
          std::move(max_lr)));
}

Learner& Learner::fit_sgdr(
    int64_t cycles,
    int64_t cycle_epochs,
    const SgdrOptions& options) {
  const LearningRates& max_lr = options.max_lr;
  TORCH_CHECK_VALUE(
      cycles >= 1 && cycle_epochs >= 1 && options.cycle_mult >= 1,
      fmt::format(
          "[Learner::fit_sgdr] cycles is {}, cycle_epochs {} and cycle_mult "
          "{}; expected all to be >= 1.",
          cycles,
          cycle_epochs,
          options.cycle_mult));
  const std::vector<int64_t> lengths =
      cycle_lengths(cycles, cycle_epochs, options.cycle_mult);
  const int64_t epochs =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const std::vector<double> rates =
      max_lr.resolve(layer_groups(), parts_->options.lr);
  const auto schedules = for_each_rate(rates, [&](double rate) {
    std::vector<schedule::Phase> phases;
    for (const int64_t length : lengths) {
      phases.push_back(
          {static_cast<double>(length) / static_cast<double>(epochs),
           schedule::cosine(rate, 0)});
    }
    return schedule::phases(std::move(phases));
  });
  return fit(epochs, max_lr, scheduler({{HyperParameter::lr, schedules}}));
}

}  // namespace tern
