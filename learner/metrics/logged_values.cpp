// Learner::log: numbers of callbacks, as metrics of the epoch.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

void check_name(const LearnerParts& l, const std::string& name) {
  const auto is_taken = [&](const Metric& metric) {
    return metric.name() == name;
  };
  // The columns of the table and of CSVLogger, the values of TensorBoard's
  // epochs. Those of batches have a place of their own for what is logged.
  static constexpr std::array kColumns =
      {"epoch", "train_loss", "valid_loss", "time", "seconds", "losses"};
  TERN_CHECK_VALUE(
      !name.empty() && std::ranges::count(kColumns, name) == 0 &&
          std::ranges::none_of(l.options.metrics, is_taken),
      "[Learner::log] the name is \"{}\", which {}; give the value a name of "
      "its own.",
      name,
      name.empty() ? "is empty" : "a metric or column has already");
  const Callback* const callback = l.running_callback;
  TERN_CHECK_VALUE(
      !callback || callback->role() != CallbackRole::writes,
      "[Learner::log] {} logs \"{}\" and writes files, so that only rank 0 "
      "calls it; expected a call of all ranks. Log from a callback whose role "
      "is trains or watches.",
      callback->name(),
      name);
}

void add_to_pass(
    LearnerParts& l,
    const std::string& name,
    const torch::Tensor& value) {
  auto& sums = l.logged_in_pass;
  auto sum = std::ranges::find(sums, name, &LoggedSum::name);
  if (sum == sums.end()) {
    sum = sums.insert(
        sum,
        {name, torch::zeros({}, torch::kDouble), /*samples=*/0});
  }
  const double samples =
      std::max<double>(1, static_cast<double>(l.state.batch_data.size()));
  sum->sum = sum->sum + value * samples;
  sum->samples += samples;
}

void put(std::vector<MetricValue>& metrics, const MetricValue& value) {
  const auto old = std::ranges::find(metrics, value.name, &MetricValue::name);
  old == metrics.end() ? metrics.push_back(value) : void(*old = value);
}

}  // namespace

void Learner::log(const std::string& name, double value) {
  log(name, torch::scalar_tensor(value, torch::kDouble));
}

void Learner::log(const std::string& name, const torch::Tensor& value) {
  LearnerParts& l = *parts_;
  check_name(l, name);
  TERN_CHECK_VALUE(
      value.defined() && value.dim() == 0 && !value.is_complex(),
      "[Learner::log] \"{}\" is {}; expected a number or a 0-dim tensor. Log "
      "its mean() or norm().",
      name,
      value.defined() ? fmt::format(
                            "{} [{}]",
                            c10::toString(value.scalar_type()),
                            fmt::join(value.sizes(), ", "))
                      : "an undefined tensor");
  const torch::NoGradGuard no_grad;
  // A copy: callbacks write the next step's value where this one is.
  const torch::Tensor number =
      value.detach().to(torch::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (l.evaluations > 0) return add_to_pass(l, name, number);
  if (l.place == Place::in_epoch && l.state.training) {
    return l.recorder->log_batch(*this, name, number);
  }
  TERN_CHECK_VALUE(
      l.place == Place::at_epoch_end,
      "[Learner::log] \"{}\" was logged outside an epoch; call it from a "
      "callback, in a batch or in on_epoch_end.",
      name);
  communicator(*this).check_equal("value logged at an epoch's end", name);
  l.recorder->log_epoch(
      *this,
      {name, communicator(*this).mean(number.item<double>())});
}

void Recorder::log_batch(
    Learner& learn,
    const std::string& name,
    torch::Tensor value) {
  const auto series = static_cast<size_t>(
      std::ranges::find(logged_, name, &LoggedValues::name) - logged_.begin());
  if (series == logged_.size()) logged_.push_back({name, {}, {}});
  LoggedValues& to = logged_[series];
  const bool is_recorded = recorded_batch_ == learn.state().batch;
  to.batches.push_back(static_cast<int64_t>(lrs_.size()) - is_recorded);
  to.values.push_back(std::nan(""));
  if (value.is_cpu()) {
    to.values.back() = value.item<double>();
  } else {
    pending_logged_.push_back({series, to.values.size() - 1, std::move(value)});
  }
}

void Recorder::log_epoch(Learner& learn, const MetricValue& value) {
  put(learn.state().last_metrics, value);
  if (epoch_is_recorded_) put(epochs_.back().metrics, value);
}

const std::vector<LoggedValues>& Recorder::logged() {
  flush();
  return logged_;
}

void Recorder::forget_logged_from(int64_t batch) {
  pending_logged_.clear();
  for (LoggedValues& values : logged_) {
    const auto lost = std::ranges::lower_bound(values.batches, batch);
    values.batches.erase(lost, values.batches.end());
    values.values.resize(values.batches.size());
  }
}

void Recorder::read_logged() {
  if (pending_logged_.empty()) return;
  Tensors values;
  for (const PendingValue& pending : pending_logged_) {
    values.push_back(pending.value);
  }
  const std::vector<double> read = read_numbers(values);
  auto next = read.begin();
  for (const PendingValue& pending : pending_logged_) {
    logged_[pending.series].values[pending.index] = *next++;
  }
  pending_logged_.clear();
}

// The means of the epoch that ends, over all ranks.
void Recorder::average_logged(Learner& learn) {
  const int64_t first =
      static_cast<int64_t>(lrs_.size()) - learn.parts().batches_done;
  std::vector<std::string> names;
  std::vector<double> sums;  // of each name, and how many values they are of
  for (const LoggedValues& series : logged_) {
    const auto begin = std::ranges::lower_bound(series.batches, first);
    const auto count = series.batches.end() - begin;
    if (count == 0) continue;
    names.push_back(series.name);
    sums.push_back(
        std::accumulate(series.values.end() - count, series.values.end(), 0.0));
    sums.push_back(static_cast<double>(count));
  }
  Communicator& ranks = communicator(learn);
  ranks.check_equal(
      "values logged in training",
      fmt::format("{}", fmt::join(names, ", ")));
  const torch::Tensor all = torch::tensor(sums, torch::kDouble);
  if (!names.empty()) ranks.all_reduce(all);
  auto& metrics = learn.state().last_metrics;
  for (size_t i = 0; i < names.size(); ++i) {
    const double* const pair = all.const_data_ptr<double>() + 2 * i;
    const bool is_of_validation = std::ranges::any_of(
        metrics,
        [&](const MetricValue& metric) { return metric.name == names[i]; });
    TORCH_CHECK_VALUE(
        !is_of_validation || names[i] != "loss",
        "[Learner::log] \"loss\" was logged in training and in validation "
        "batches, which would make the first train_loss, a column already; "
        "log it in one kind of batch, or under another name.");
    put(metrics,
        {is_of_validation ? "train_" + names[i] : names[i], pair[0] / pair[1]});
  }
}

std::vector<MetricValue> Recorder::logged_in(int64_t batch) const {
  std::vector<MetricValue> values;
  for (const LoggedValues& series : logged_) {
    const auto after = std::ranges::upper_bound(series.batches, batch);
    if (after == series.batches.begin() || *(after - 1) != batch) continue;
    const auto at = after - 1 - series.batches.begin();
    values.push_back({series.name, series.values[at]});
  }
  return values;
}

}  // namespace tern
