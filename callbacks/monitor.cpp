#include "tern/callbacks/monitor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

bool has(const std::vector<MetricValue>& values, const std::string& name) {
  return std::ranges::find(values, name, &MetricValue::name) != values.end();
}

}  // namespace

Monitor::Monitor(
    std::string owner,
    std::string monitored,
    double min_delta,
    const std::string& mode,
    bool reset_on_fit)
    : owner_(std::move(owner)),
      monitored_(std::move(monitored)),
      min_delta_(min_delta),
      resets_on_fit_(reset_on_fit) {
  check_at_least(owner_.c_str(), "min_delta", min_delta, 0);
  TERN_CHECK_VALUE(
      mode.empty() || mode == "min" || mode == "max",
      "[{}] mode is \"{}\"; expected \"min\" if lower is better, \"max\" if "
      "higher is better, or none for a loss or metric.",
      owner_,
      mode);
  if (!mode.empty()) mode_ = mode == "max";
}

// Unset if neither the mode nor the name determines the direction.
std::optional<bool> Monitor::find_direction(const Learner& learn) const {
  if (mode_) return mode_;
  for (const Metric& metric : learn.options().metrics) {
    if (monitored_ == metric.name() || monitored_ == "train_" + metric.name())
      return metric.higher_is_better();
  }
  for (const CallbackHandle& callback : learn.callbacks()) {
    const auto* const train = dynamic_cast<const TrainMetrics*>(callback.get());
    if (!train) continue;
    for (const Metric& metric : train->metrics(learn)) {
      if (monitored_ == "train_" + metric.name())
        return metric.higher_is_better();
    }
  }
  if (monitored_.find("loss") != std::string::npos ||
      monitored_.find("error") != std::string::npos) {
    return false;
  }
  return std::nullopt;
}

void Monitor::begin(Learner& learn) {
  if (resets_on_fit_) best_ = std::numeric_limits<double>::quiet_NaN();
  epochs_ = with_value_ = with_number_ = 0;
  std::vector<std::string> known = {"train_loss"};
  if (learn.data().valid) {
    known.emplace_back("valid_loss");
    for (const Metric& metric : learn.options().metrics) {
      known.push_back(metric.name());
    }
  }
  const auto direction = find_direction(learn);
  TERN_CHECK_VALUE(
      direction,
      "[{}] the monitor is \"{}\", whose name does not indicate whether lower "
      "or higher is better; expected .mode = \"min\" or \"max\", or one of the "
      "monitors {}.",
      owner_,
      monitored_,
      fmt::join(known, ", "));
  higher_is_better_ = *direction;
  if (std::ranges::count(known, monitored_) > 0) return;
  if (monitored_ == "valid_loss") refuse(learn);
  for (const EpochRecord& epoch : learn.recorder().epochs()) {
    if (has(epoch.metrics, monitored_)) return;
  }
  learn.options().sink->line(fmt::format(
      "{}: no metric is named \"{}\"; a callback must log it.",
      owner_,
      monitored_));
}

void Monitor::refuse(Learner& learn) const {
  std::vector<std::string> names = {"train_loss"};
  if (learn.data().valid) names.emplace_back("valid_loss");
  for (const MetricValue& value : learn.state().last_metrics) {
    names.push_back(value.name);
  }
  C10_THROW_ERROR(
      ValueError,
      fmt::format(
          "[{}] there is no \"{}\" to monitor; expected one of {}. Monitor one "
          "of these, log the value in each epoch, or add the metric or "
          "validation data.",
          owner_,
          monitored_,
          fmt::join(names, ", ")));
}

// Unset if this epoch has no value.
std::optional<double> Monitor::find(Learner& learn) const {
  const TrainState& state = learn.state();
  if (monitored_ == "valid_loss") return state.valid_loss;
  if (monitored_ == "train_loss") {
    return learn.recorder().epochs().back().train_loss;
  }
  for (const MetricValue& metric : state.last_metrics) {
    if (metric.name == monitored_) return metric.value;
  }
  const auto& epochs = learn.recorder().epochs();
  const bool was_logged =
      std::ranges::any_of(epochs, [this](const EpochRecord& epoch) {
        return has(epoch.metrics, monitored_);
      });
  if (!was_logged && !state.stop_training) refuse(learn);
  return std::nullopt;
}

double Monitor::value(Learner& learn) {
  const std::optional<double> found = find(learn);
  ++epochs_;
  with_value_ += found.has_value();
  with_number_ += found && !std::isnan(*found);
  return found.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string Monitor::scope(Learner& learn) const {
  if (std::ssize(learn.recorder().epochs()) <= epochs_) return "";
  return resets_on_fit_ ? " of this fit" : " of all fits";
}

std::string Monitor::why_no_value() const {
  if (epochs_ == 0 || with_number_ > 0) return "";
  return fmt::format(
      "{} {} in {}",
      monitored_,
      with_value_ > 0 ? "was NaN" : "had no value",
      epochs_ == 1 ? "the one epoch" : fmt::format("all {} epochs", epochs_));
}

bool Monitor::is_better(double value) const {
  if (std::isnan(value)) return false;
  return std::isnan(best_) || (higher_is_better_ ? value - min_delta_ > best_
                                                 : value + min_delta_ < best_);
}

bool Monitor::improves(double value) {
  if (!is_better(value)) return false;
  best_ = value;
  return true;
}

OptionValues Monitor::option_values() const {
  return {
      {"monitor", option_text(monitored_)},
      {"min_delta", option_text(min_delta_)},
      {"mode",
       option_text(std::string(
           !mode_   ? ""
           : *mode_ ? "max"
                    : "min"))},
      {"reset_on_fit", option_text(resets_on_fit_)}};
}

void Monitor::save(StateDict& state) const {
  state.insert("best", torch::scalar_tensor(best_, torch::kDouble));
  state.insert(
      "seen",
      torch::tensor({epochs_, with_value_, with_number_}, torch::kLong));
}

void Monitor::load(const StateDict& state) {
  best_ = saved_value(owner_, state, "best").item<double>();
  // Missing in older checkpoints.
  if (!state.contains("seen")) return;
  const torch::Tensor seen = state["seen"];
  TERN_CHECK_VALUE(
      seen.scalar_type() == torch::kLong && seen.numel() == 3,
      "[{}] the saved \"seen\" has {} numbers; expected 3 of kLong.",
      owner_,
      seen.numel());
  const int64_t* const counts = seen.const_data_ptr<int64_t>();
  epochs_ = counts[0];
  with_value_ = counts[1];
  with_number_ = counts[2];
}

PatientCallback::PatientCallback(Monitor monitor, int64_t patience)
    : monitor_(std::move(monitor)), patience_(patience) {
  check_at_least(monitor_.owner().c_str(), "patience", patience, 0);
}

void PatientCallback::on_train_begin(Learner& learn) {
  monitor_.begin(learn);
  waited_ = 0;
}

void PatientCallback::on_epoch_end(Learner& learn) {
  // The values of an interrupted epoch are incomplete.
  if (learn.state().stop_training) return;
  if (monitor_.improves(monitor_.value(learn))) {
    waited_ = 0;
  } else if (++waited_ >= patience_) {
    act(learn,
        fmt::format(
            "{} did not improve on {:.6f}{} for {} epoch{}",
            monitor_.monitored(),
            monitor_.best(),
            monitor_.resets_on_fit() ? "" : monitor_.scope(learn),
            waited_,
            waited_ == 1 ? "" : "s"));
    waited_ = 0;
  }
}

void PatientCallback::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  const std::string why = monitor_.why_no_value();
  if (why.empty() || state.is_removal || state.result != FitResult::completed) {
    return;
  }
  learn.options().sink->warning(fmt::format(
      "{}: {}, so improvement could not be measured.",
      name(),
      why));
}

OptionValues PatientCallback::option_values() const {
  OptionValues values = monitor_.option_values();
  values.emplace_back("patience", option_text(patience_));
  return values;
}

StateDict PatientCallback::state_dict() const {
  StateDict state;
  monitor_.save(state);
  state.insert("waited", torch::tensor(waited_, torch::kLong));
  return state;
}

void PatientCallback::load_state_dict(const StateDict& state) {
  monitor_.load(state);
  waited_ = saved_value(name(), state, "waited").item<int64_t>();
}

EarlyStopping::EarlyStopping(const Options& options)
    : PatientCallback(
          {"EarlyStopping",
           options.monitor,
           options.min_delta,
           options.mode,
           options.reset_on_fit},
          options.patience) {}

void EarlyStopping::act(Learner& learn, const std::string& reason) {
  learn.options().sink->line(
      fmt::format("EarlyStopping: {}; training stops.", reason));
  learn.state().stop_training = true;
}

ReduceLROnPlateau::ReduceLROnPlateau(const Options& options)
    : PatientCallback(
          {"ReduceLROnPlateau",
           options.monitor,
           options.min_delta,
           options.mode,
           options.reset_on_fit},
          options.patience),
      factor_(options.factor),
      min_lr_(options.min_lr) {
  TERN_CHECK_VALUE(
      std::isfinite(factor_) && factor_ > 1 && min_lr_ >= 0,
      "[ReduceLROnPlateau] factor is {} and min_lr is {}; expected a factor > "
      "1, which the learning rates are divided by, and a learning rate >= 0.",
      factor_,
      min_lr_);
}

void ReduceLROnPlateau::on_add(Learner& learn) {
  check_sets_alone(learn, *this);
}

void ReduceLROnPlateau::act(Learner& learn, const std::string& reason) {
  auto& groups = learn.optimizer().param_groups();
  const double last = groups.back().options().get_lr();
  const double divisor =
      min_lr_ > 0 ? std::min(factor_, last / min_lr_) : factor_;
  if (!(divisor > 1)) return;
  for (auto& group : groups) {
    group.options().set_lr(group.options().get_lr() / divisor);
  }
  learn.options().sink->line(fmt::format(
      "ReduceLROnPlateau: {}; the learning rate is now {:.3g}.",
      reason,
      last / divisor));
}

OptionValues ReduceLROnPlateau::option_values() const {
  OptionValues values = PatientCallback::option_values();
  values.emplace_back("factor", option_text(factor_));
  values.emplace_back("min_lr", option_text(min_lr_));
  return values;
}

}  // namespace tern
