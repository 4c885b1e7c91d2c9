#include "tern/learner/recorder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <ranges>
#include <sstream>

#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

// Limits the number of losses that stay on the device if they are not read.
constexpr size_t kMaxPending = 8192;

}  // namespace

const std::vector<double>& Recorder::losses() {
  flush();
  return losses_;
}

const std::vector<double>& Recorder::smooth_losses() {
  flush();
  return smooth_losses_;
}

void Recorder::flush() {
  read_logged();
  if (pending_.empty()) return;
  const torch::Tensor values =
      torch::stack(pending_).to(torch::kCPU, torch::kDouble);
  const auto first_batch = static_cast<int64_t>(losses_.size());
  pending_.clear();
  for (int64_t i = 0; i < values.size(0); ++i) {
    record(values.const_data_ptr<double>()[i]);
  }
  flush_scales(first_batch);
}

void Recorder::record(double loss) {
  average_.add({loss, loss_counts_[losses_.size()]});
  losses_.push_back(loss);
  smooth_losses_.push_back(average_.value());
}

void Recorder::on_train_begin(Learner& learn) {
  average_ = {};
  learn.state().smooth_loss.reset();
  add_call(parts_of(learn).position.call);
}

void Recorder::add_call(std::string call, int64_t loaded_epoch) {
  calls_.push_back(
      {std::move(call), std::ssize(lrs_), std::ssize(epochs_), loaded_epoch});
}

void Recorder::on_epoch_begin(Learner&) {
  recorded_batch_ = -1;
  epoch_is_recorded_ = false;
  epoch_start_ = std::chrono::steady_clock::now();
}

void Recorder::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const PrecisionPolicy* const precision = parts_of(learn).precision;
  loss_counts_.push_back(parts_of(learn).step.loss_count);
  if (state.loss.is_cpu() && state.loss.scalar_type() == torch::kFloat) {
    // Keeping this small tensor would fragment the memory that the next step
    // reuses.
    flush();
    record(*state.loss.const_data_ptr<float>());
    record_scale(
        static_cast<int64_t>(losses_.size()) - 1,
        precision ? precision->loss_scale() : std::nan(""),
        !state.skip_step && state.step_result == StepResult::skipped);
  } else {
    pending_.push_back(state.loss);
    pending_scales_.push_back(
        {precision ? precision->loss_scale_record() : torch::Tensor(),
         !state.skip_step});
  }
  const auto& options = learn.optimizer().param_groups().back().options();
  lrs_.push_back(options.get_lr());
  momentums_.push_back(optim::momentum(options));
  if (recorded_batch_ < 0 && !state.batch_data.inputs.empty()) {
    input_shape_ = state.batch_data.inputs[0].sizes().vec();
  }
  recorded_batch_ = state.batch;
  if (pending_.size() + pending_logged_.size() >= kMaxPending) flush();
}

void Recorder::on_epoch_end(Learner& learn) {
  flush();
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - epoch_start_;
  average_logged(learn);
  const TrainState& state = learn.state();
  epochs_.push_back(
      {static_cast<int64_t>(epochs_.size()),
       mean_over_ranks(communicator(learn), average_.counted()).loss,
       state.valid_loss,
       state.last_metrics,
       time.count()});
  epoch_ends_.push_back(static_cast<int64_t>(losses_.size()));
  epoch_is_recorded_ = true;
}

// After an exception the device may be unusable, so the values that are still
// on the device are lost.
void Recorder::on_train_end(Learner& learn) {
  if (!learn.state().failed) return;
  pending_.clear();
  pending_scales_.clear();
  const size_t read = losses_.size();
  lrs_.resize(read);
  loss_counts_.resize(read);
  momentums_.resize(read);
  forget_logged_from(static_cast<int64_t>(read));
}

const std::vector<double>& Recorder::loss_scales() {
  flush();
  return scales_;
}

const std::vector<int64_t>& Recorder::skipped_steps() {
  flush();
  return skips_;
}

void Recorder::flush_scales(int64_t first_batch) {
  Tensors known;
  for (const PendingScale& pending : pending_scales_) {
    if (pending.record.defined()) known.push_back(pending.record);
  }
  const torch::Tensor read =
      known.empty() ? torch::Tensor() : torch::stack(known).cpu();
  const float* next = known.empty() ? nullptr : read.const_data_ptr<float>();
  for (size_t i = 0; i < pending_scales_.size(); ++i) {
    const PendingScale& pending = pending_scales_[i];
    const int64_t batch = first_batch + static_cast<int64_t>(i);
    if (pending.record.defined()) {
      record_scale(batch, next[0], pending.has_stepped && next[1] > 0);
      next += 2;
    } else {
      record_scale(batch, std::nan(""), false);
    }
  }
  pending_scales_.clear();
}

void Recorder::record_scale(int64_t batch, double scale, bool was_skipped) {
  scales_.push_back(scale);
  if (was_skipped) skips_.push_back(batch);
}

namespace {

void check_name(const LearnerParts& l, const std::string& name) {
  const auto is_taken = [&](const Metric& metric) {
    return metric.name() == name;
  };
  // The columns of the table and of CSVLogger, and the names of TensorBoard's
  // epoch values. TensorBoard's batch values have a separate place for logged
  // values.
  static constexpr std::array kColumns =
      {"epoch", "train_loss", "valid_loss", "time", "seconds", "losses"};
  TERN_CHECK_VALUE(
      !name.empty() && std::ranges::count(kColumns, name) == 0 &&
          std::ranges::none_of(l.options.metrics, is_taken),
      "[Learner::log] the name is \"{}\", which {}; give the value a unique "
      "name.",
      name,
      name.empty() ? "is empty" : "is the name of a metric or column");
  const Callback* const callback = l.callbacks.running;
  TERN_CHECK_VALUE(
      !callback || callback->role() != CallbackRole::writes,
      "[Learner::log] {} logs \"{}\", but it is a callback that writes files, "
      "which runs on rank 0 only; expected a call on all ranks. Log from a "
      "callback whose role is trains or watches.",
      callback->name(),
      name);
}

void add_to_pass(
    LearnerParts& l,
    const std::string& name,
    const torch::Tensor& value) {
  auto& sums = l.evaluation.logged;
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
  // A copy, because callbacks write the next step's value into the same tensor.
  const torch::Tensor number =
      value.detach().to(torch::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (l.evaluation.depth > 0) return add_to_pass(l, name, number);
  if (l.position.place == Place::in_epoch && l.state.training) {
    return l.recorder->log_batch(*this, name, number);
  }
  TERN_CHECK_VALUE(
      l.position.place == Place::at_epoch_end,
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

// Computes the means of the current epoch, over all ranks.
void Recorder::average_logged(Learner& learn) {
  const int64_t first =
      static_cast<int64_t>(lrs_.size()) - parts_of(learn).position.batches_done;
  std::vector<std::string> names;
  std::vector<double> sums;  // for each name, the sum and the number of values
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
        "batches, so the former would become train_loss, which is already a "
        "column; log it in one kind of batch, or under another name.");
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

namespace {

// The x axis counts batches from 1.
Curve over_batches(
    std::string label,
    const std::vector<double>& values,
    double opacity = 1) {
  Curve curve{std::move(label), {}, values, opacity};
  for (size_t i = 0; i < values.size(); ++i) {
    curve.x.push_back(static_cast<double>(i + 1));
  }
  return curve;
}

constexpr const char* kLoaded = "loaded by SaveModel";

// Smooths like the Recorder, but over all fits, so that the curve does not jump
// where a fit begins.
std::vector<double> smoothed(
    const std::vector<double>& losses,
    const std::vector<double>& counts) {
  LossAverage average;
  std::vector<double> result;
  for (size_t i = 0; i < losses.size(); ++i) {
    const bool is_finite = std::isfinite(losses[i]);
    if (is_finite) {
      // If the count is unknown, uses the first batch's count.
      average.add(
          {losses[i],
           !std::isnan(counts[i]) ? counts[i]
           : average.is_empty()   ? 1
                                  : average.unit()});
    }
    result.push_back(is_finite ? average.value() : losses[i]);
  }
  return result;
}

}  // namespace

// Creates a plot with a mark where each fit after the first begins.
Plot Recorder::batch_plot(
    const std::string& title,
    const std::string& y_label) {
  Plot plot{.title = title, .x_label = "batches", .y_label = y_label};
  plot.whole_x = true;
  plot.marks_label = "a fit begins";
  for (const CallRecord& call : calls_) {
    const auto first = static_cast<double>(call.first_batch + 1);
    if (call.first_batch > 0 && call.first_batch < std::ssize(lrs_) &&
        (plot.marks.empty() || plot.marks.back() != first)) {
      plot.marks.push_back(first);
    }
  }
  return plot;
}

Plot Recorder::loss_plot(const PlotOptions& options) {
  flush();
  Plot plot = batch_plot("Losses", "loss");
  plot.log_y = options.log_y;
  plot.clip_outliers = options.clip_outliers;
  plot.curves = {
      over_batches("train, each batch", losses_, 0.35),
      over_batches("train, smoothed", smoothed(losses_, loss_counts_))};
  // The average is within the range of the losses, but after an outlier it
  // stays outside the clipped range for a long time.
  plot.curves.back().sets_range = false;
  Curve valid{.label = "valid", .markers = true};
  for (size_t i = 0; i < epochs_.size(); ++i) {
    valid.x.push_back(static_cast<double>(epoch_ends_[i]));
    valid.y.push_back(epochs_[i].valid_loss);
  }
  Curve loaded{.label = kLoaded, .dots = true};
  for (const int64_t epoch : loaded_epochs()) {
    loaded.x.push_back(valid.x[epoch]);
    loaded.y.push_back(valid.y[epoch]);
  }
  if (valid.has_points()) plot.curves.push_back(std::move(valid));
  if (loaded.has_points()) plot.curves.push_back(std::move(loaded));
  return plot;
}

std::vector<int64_t> Recorder::loaded_epochs() const {
  std::vector<int64_t> loaded;
  for (const CallRecord& call : calls_) {
    const bool is_there =
        call.loaded_epoch >= 0 && call.loaded_epoch < std::ssize(epochs_);
    if (is_there && std::ranges::count(loaded, call.loaded_epoch) == 0) {
      loaded.push_back(call.loaded_epoch);
    }
  }
  return loaded;
}

Plot Recorder::learning_rate_plot() {
  Plot plot = batch_plot("Learning rate", "learning rate");
  plot.curves = {over_batches("", lrs_)};
  return plot;
}

Plot Recorder::momentum_plot() {
  Plot plot = batch_plot("Momentum", "momentum");
  plot.curves = {over_batches("", momentums_)};
  return plot;
}

Plot Recorder::metric_plot() {
  Plot plot{.title = "Metrics", .x_label = "epoch", .whole_x = true};
  for (size_t i = 0; i < epochs_.size(); ++i) {
    for (const MetricValue& metric : epochs_[i].metrics) {
      auto curve = std::ranges::find(plot.curves, metric.name, &Curve::label);
      if (curve == plot.curves.end()) {
        curve = plot.curves.insert(
            curve,
            Curve{.label = metric.name, .markers = true});
      }
      curve->x.push_back(static_cast<double>(epochs_[i].epoch));
      curve->y.push_back(metric.value);
    }
  }
  plot.marks_label = kLoaded;
  for (const int64_t epoch : loaded_epochs()) {
    plot.marks.push_back(static_cast<double>(epochs_[epoch].epoch));
  }
  return plot;
}

Plot Recorder::logged_plot(
    const std::string& name,
    const PlotOptions& options) {
  flush();
  const auto series = std::ranges::find(logged_, name, &LoggedValues::name);
  const auto names = logged_ | std::views::transform(&LoggedValues::name);
  TERN_CHECK_VALUE(
      series != logged_.end(),
      "[Recorder::logged_plot] no callback has logged \"{}\" in a training "
      "batch; expected {}. Values of validation and of on_epoch_end are in "
      "plot_metrics.",
      name,
      logged_.empty() ? "a name given to Learner::log"
                      : fmt::format("one of {}", fmt::join(names, ", ")));
  Plot plot = batch_plot(name, name);
  plot.log_y = options.log_y;
  plot.clip_outliers = options.clip_outliers;
  Curve each{.label = "each batch", .y = series->values, .opacity = 0.35};
  for (const int64_t batch : series->batches) {
    each.x.push_back(static_cast<double>(batch + 1));
  }
  Curve mean = each;
  mean.label = "smoothed";
  mean.opacity = 1;
  mean.y = smoothed(each.y, std::vector<double>(each.y.size(), 1));
  mean.sets_range = false;
  plot.curves = {std::move(each), std::move(mean)};
  return plot;
}

Plot Recorder::loss_scale_plot() {
  flush();
  Plot plot = batch_plot("Loss scale", "loss scale");
  plot.log_y = true;
  plot.curves = {over_batches("loss scale", scales_)};
  Curve skips{"skipped step", {}, {}};
  skips.dots = true;
  for (const int64_t batch : skips_) {
    skips.x.push_back(static_cast<double>(batch + 1));
    skips.y.push_back(scales_[batch]);
  }
  if (!skips_.empty()) plot.curves.push_back(std::move(skips));
  return plot;
}

void Recorder::plot_losses(
    const std::filesystem::path& file,
    const PlotOptions& options) {
  save_plot(file, loss_plot(options));
}
void Recorder::plot_learning_rates(const std::filesystem::path& file) {
  save_plot(file, learning_rate_plot());
}
void Recorder::plot_momentums(const std::filesystem::path& file) {
  save_plot(file, momentum_plot());
}
void Recorder::plot_metrics(const std::filesystem::path& file) {
  save_plot(file, metric_plot());
}
void Recorder::plot_loss_scales(const std::filesystem::path& file) {
  save_plot(file, loss_scale_plot());
}
void Recorder::plot_logged(
    const std::filesystem::path& file,
    const std::string& name,
    const PlotOptions& options) {
  save_plot(file, logged_plot(name, options));
}

namespace {

template <class Numbers>
torch::Tensor column(const Numbers& numbers) {
  std::vector<double> values;
  values.reserve(numbers.size());
  for (const auto number : numbers) {
    values.push_back(static_cast<double>(number));
  }
  return torch::tensor(values, torch::kDouble);
}

// Older checkpoints store skipped_steps as kLong.
std::vector<double> column(const StateDict& state, const std::string& name) {
  const torch::Tensor* const values = state.find(name);
  TERN_CHECK_VALUE(
      values && values->dim() == 1,
      "[Recorder] the state does not hold \"{}\"; expected the state of a "
      "Recorder.",
      name);
  const torch::Tensor numbers = values->to(torch::kDouble).contiguous();
  const auto* const data = numbers.const_data_ptr<double>();
  return {data, data + numbers.numel()};
}

std::vector<int64_t> integers(const StateDict& state, const std::string& name) {
  const std::vector<double> numbers = column(state, name);
  return {numbers.begin(), numbers.end()};
}

// Prefix of values logged in training batches: the batches, then the values.
const std::string kLogged = "logged ";
const std::string kMetric = "metric ";

}  // namespace

// Metrics are columns "metric <name>", with NaN for an epoch that does not have
// the metric.
StateDict Recorder::state_dict() const {
  const auto of = [](const auto& records, auto field) {
    return column(records | std::views::transform(field));
  };
  StateDict state;
  state.insert("losses", column(losses_));
  state.insert("smooth_losses", column(smooth_losses_));
  state.insert("lrs", column(lrs_));
  state.insert("momentums", column(momentums_));
  state.insert("loss_scales", column(scales_));
  state.insert("skipped_steps", column(skips_));
  state.insert(
      "average",
      torch::tensor(
          {average_.sum(),
           static_cast<double>(average_.batches()),
           average_.missing(),
           average_.unit()},
          torch::kDouble));
  state.insert("loss_counts", column(loss_counts_));
  state.insert("epochs", of(epochs_, &EpochRecord::epoch));
  state.insert("epoch_ends", column(epoch_ends_));
  state.insert("train_loss", of(epochs_, &EpochRecord::train_loss));
  state.insert("valid_loss", of(epochs_, &EpochRecord::valid_loss));
  state.insert("seconds", of(epochs_, &EpochRecord::seconds));
  // For each epoch, the number of its metrics and their indices, because not
  // every epoch has all metrics.
  std::vector<int64_t> which;
  std::vector<std::string> names;
  for (size_t i = 0; i < epochs_.size(); ++i) {
    which.push_back(std::ssize(epochs_[i].metrics));
    for (const MetricValue& metric : epochs_[i].metrics) {
      const std::string name = kMetric + metric.name;
      if (!state.contains(name)) {
        names.push_back(name);
        state.insert(
            name,
            column(std::vector<double>(epochs_.size(), std::nan(""))));
      }
      state[name].mutable_data_ptr<double>()[i] = metric.value;
      which.push_back(std::ranges::find(names, name) - names.begin());
    }
  }
  state.insert("which_metrics", column(which));
  for (const LoggedValues& logged : logged_) {
    state.insert(
        kLogged + logged.name,
        torch::cat({column(logged.batches), column(logged.values)}));
  }
  std::string calls;
  for (const CallRecord& call : calls_) calls += call.call + "\n";
  state.insert("fit_calls", column(calls));
  state.insert("fit_batches", of(calls_, &CallRecord::first_batch));
  state.insert("fit_epochs", of(calls_, &CallRecord::first_epoch));
  state.insert("fit_loads", of(calls_, &CallRecord::loaded_epoch));
  return state;
}

void Recorder::load_state_dict(const StateDict& state) {
  Recorder loaded;
  loaded.losses_ = column(state, "losses");
  loaded.smooth_losses_ = column(state, "smooth_losses");
  loaded.lrs_ = column(state, "lrs");
  loaded.momentums_ = column(state, "momentums");
  loaded.scales_ = column(state, "loss_scales");
  loaded.skips_ = integers(state, "skipped_steps");
  const auto average = column(state, "average");
  // Older checkpoints do not contain the counts of losses.
  const bool has_counts = average.size() == 4;
  loaded.average_.restore(
      average.at(0),
      static_cast<int64_t>(average.at(1)),
      has_counts ? average[2] : 0,
      has_counts ? average[3] : 0);
  loaded.loss_counts_ =
      state.contains("loss_counts")
          ? column(state, "loss_counts")
          : std::vector<double>(loaded.losses_.size(), std::nan(""));
  const auto numbers = column(state, "epochs");
  const auto train = column(state, "train_loss");
  const auto valid = column(state, "valid_loss");
  const auto seconds = column(state, "seconds");
  loaded.epoch_ends_ = integers(state, "epoch_ends");
  for (size_t i = 0; i < numbers.size(); ++i) {
    loaded.epochs_.push_back(
        {static_cast<int64_t>(numbers[i]),
         train.at(i),
         valid.at(i),
         {},
         seconds.at(i)});
  }
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
  for (const auto& entry : state) {
    if (!entry.key().starts_with(kMetric)) continue;
    names.push_back(entry.key().substr(kMetric.size()));
    values.push_back(column(state, entry.key()));
  }
  std::vector<int64_t> all(names.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> which;  // older checkpoints have none
  if (state.contains("which_metrics")) which = integers(state, "which_metrics");
  size_t next = 0;
  for (size_t i = 0; i < loaded.epochs_.size(); ++i) {
    std::vector<int64_t> of_epoch = all;
    if (next < which.size()) {
      const int64_t count = which[next++];
      of_epoch.clear();
      while (std::ssize(of_epoch) < count) of_epoch.push_back(which.at(next++));
    }
    for (const int64_t metric : of_epoch) {
      loaded.epochs_[i].metrics.push_back(
          {names.at(metric), values.at(metric).at(i)});
    }
  }
  for (const auto& entry : state) {
    if (!entry.key().starts_with(kLogged)) continue;
    const auto batches = integers(state, entry.key());
    const auto values = column(state, entry.key());
    const auto half = std::ssize(values) / 2;
    loaded.logged_.push_back(
        {entry.key().substr(kLogged.size()),
         {batches.begin(), batches.begin() + half},
         {values.begin() + half, values.end()}});
  }
  if (state.contains("fit_calls")) {  // older checkpoints have none
    const auto calls = column(state, "fit_calls");
    std::istringstream lines(std::string(calls.begin(), calls.end()));
    const auto batches = integers(state, "fit_batches");
    const auto epochs = integers(state, "fit_epochs");
    std::vector<int64_t> loads(batches.size(), -1);
    if (state.contains("fit_loads")) loads = integers(state, "fit_loads");
    for (size_t i = 0; i < batches.size(); ++i) {
      CallRecord call{"", batches[i], epochs.at(i), loads.at(i)};
      std::getline(lines, call.call);
      loaded.calls_.push_back(std::move(call));
    }
  }
  loaded.epoch_start_ = epoch_start_;
  *this = std::move(loaded);
}

}  // namespace tern
