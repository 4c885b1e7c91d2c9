#include "tern/callbacks/schedules/one_cycle.h"

#include <algorithm>
#include <cmath>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

void check_part(const char* where, double value) {
  TERN_CHECK_VALUE(
      value > 0 && value <= 1,
      "[{}] pct_start is {}; expected a fraction in (0, 1].",
      where,
      value);
}

// Rounds the part down to whole steps, at least one.
double in_whole_steps(double part, int64_t batches) {
  const double steps = std::max(1.0, static_cast<double>(batches));
  return std::max(1.0, std::floor(part * steps)) / steps;
}

// fastai's combined_cos: from `start` to `middle` in the first `part`, then to
// `end`.
Schedule combined_cosine(double part, double start, double middle, double end) {
  if (part >= 1) return schedule::cosine(start, middle);
  return schedule::phases(
      {{part, schedule::cosine(start, middle)},
       {1 - part, schedule::cosine(middle, end)}});
}

// Sets the name that `fit` records as its call, for the lifetime of the result.
auto named_caller(LearnerParts& l, const std::string& name) {
  const std::string before = l.position.caller;
  l.position.caller = before == "fit" ? name : before + ": " + name;
  return c10::make_scope_exit([&l, before] { l.position.caller = before; });
}

// Schedules the fit's learning rates, multiplied by `factor`.
std::shared_ptr<ParamScheduler> of_rate(Schedule factor) {
  return std::make_shared<ParamScheduler>(
      std::vector<ParamScheduler::Scheduled>{
          {HyperParameter::lr, {std::move(factor)}, /*is_factor=*/true}});
}

}  // namespace

Learner& Learner::fit_one_cycle(
    int64_t epochs,
    std::initializer_list<double> max_lr) {
  return one_cycle_at(epochs, max_lr);
}

Learner& Learner::one_cycle_at(int64_t epochs, LearningRates max_lr) {
  return fit_one_cycle(epochs, {.max_lr = std::move(max_lr)});
}

Learner& Learner::fit_one_cycle(
    int64_t epochs,
    LearningRates max_lr,
    const OneCycleOptions& options) {
  TORCH_CHECK_VALUE(
      options.max_lr.empty(),
      "[Learner::fit_one_cycle] the learning rates were given twice, as an "
      "argument and as options.max_lr; expected only one of them. Omit the "
      "other.");
  OneCycleOptions all = options;
  all.max_lr = std::move(max_lr);
  return fit_one_cycle(epochs, all);
}

Learner& Learner::fit_one_cycle(
    int64_t epochs,
    const OneCycleOptions& options) {
  check_positive("Learner::fit_one_cycle", "div", options.div);
  check_positive("Learner::fit_one_cycle", "div_final", options.div_final);
  check_part("Learner::fit_one_cycle", options.pct_start);
  const bool moves_momentum = std::ranges::all_of(
      optimizer().param_groups(),
      [](const auto& group) { return optim::has_momentum(group.options()); });
  const auto one_cycle = [=](int64_t batches) {
    const double part = options.whole_steps
                            ? in_whole_steps(options.pct_start, batches)
                            : options.pct_start;
    std::vector<ParamScheduler::Scheduled> scheduled = {
        {HyperParameter::lr,
         {combined_cosine(part, 1 / options.div, 1, 1 / options.div_final)},
         /*is_factor=*/true}};
    if (moves_momentum) {
      const auto& moms = options.moms;
      scheduled.push_back(
          {HyperParameter::momentum,
           {combined_cosine(part, moms[0], moms[1], moms[2])}});
    }
    return scheduled;
  };
  const auto caller = named_caller(*parts_, "fit_one_cycle");
  return fit(
      epochs,
      options.max_lr,
      {std::make_shared<ParamScheduler>(one_cycle)});
}

Learner& Learner::fine_tune(int64_t epochs) {
  return fine_tune(epochs, FineTuneOptions{});
}

Learner& Learner::fine_tune(int64_t epochs, const FineTuneOptions& options) {
  const char* const where = "Learner::fine_tune";
  check_positive(where, "base_lr", options.base_lr);
  check_positive(where, "lr_mult", options.lr_mult);
  check_positive(where, "div", options.div);
  check_part(where, options.pct_start);
  check_at_least(where, "epochs", epochs, 0);
  check_at_least(where, "freeze_epochs", options.freeze_epochs, 0);
  check_not_fitting(*this, where);
  const auto caller =
      named_caller(*parts_, fmt::format("fine_tune({})", epochs));
  freeze();
  fit_one_cycle(
      options.freeze_epochs,
      {.max_lr = LearningRates::up_to(options.base_lr), .pct_start = 0.99});
  // A requested stop or a pruned trial ends the whole fine_tune.
  if (parts_->state.result != FitResult::completed) return *this;
  unfreeze();
  const double base = options.base_lr / 2;
  return fit_one_cycle(
      epochs,
      {.max_lr = {base / options.lr_mult, base},
       .div = options.div,
       .pct_start = options.pct_start});
}

std::shared_ptr<ParamScheduler> flat_cos(const FlatCosOptions& options) {
  check_positive("flat_cos", "div_final", options.div_final);
  check_part("flat_cos", options.pct_start);
  return of_rate(
      combined_cosine(options.pct_start, 1, 1, 1 / options.div_final));
}

std::shared_ptr<ParamScheduler> sgdr(const SgdrOptions& options) {
  const auto mult = static_cast<double>(options.cycle_mult);
  const auto count = static_cast<double>(options.cycles);
  TERN_CHECK_VALUE(
      count >= 1 && count <= 1000 && mult >= 1 &&
          std::isfinite(std::pow(mult, count)),
      "[sgdr] cycles is {} and cycle_mult {}; expected 1 to 1000 cycles, a "
      "cycle_mult of at least 1, and a finite length of the last cycle.",
      options.cycles,
      options.cycle_mult);
  std::vector<schedule::Phase> cycles;
  double sum = 0;
  for (int64_t i = 0; i < options.cycles; ++i) {
    const double length = std::pow(mult, static_cast<double>(i));
    cycles.push_back({length, schedule::cosine(1, 0)});
    sum += length;
  }
  for (schedule::Phase& cycle : cycles) cycle.part /= sum;
  return of_rate(schedule::phases(std::move(cycles)));
}

}  // namespace tern
