// What the Recorder has kept, as tensors by name.

#include <cmath>
#include <ranges>
#include <sstream>

#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/recorder.h"

namespace tern {

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

// Older checkpoints have skipped_steps in kLong.
std::vector<double> column(const StateDict& state, const std::string& name) {
  const torch::Tensor* const values = state.find(name);
  TERN_CHECK_VALUE(
      values && values->dim() == 1,
      "[Recorder] the state does not hold \"{}\"; expected that of a Recorder.",
      name);
  const torch::Tensor numbers = values->to(torch::kDouble).contiguous();
  const auto* const data = numbers.const_data_ptr<double>();
  return {data, data + numbers.numel()};
}

std::vector<int64_t> integers(const StateDict& state, const std::string& name) {
  const std::vector<double> numbers = column(state, name);
  return {numbers.begin(), numbers.end()};
}

// What callbacks logged under a name in training batches: the batches, then the
// values.
const std::string kLogged = "logged ";

}  // namespace

// Metrics are columns "metric <name>"; an epoch without one has a NaN there.
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
      torch::tensor({average_, static_cast<double>(count_)}, torch::kDouble));
  state.insert("epochs", of(epochs_, &EpochRecord::epoch));
  state.insert("epoch_ends", column(epoch_ends_));
  state.insert("train_loss", of(epochs_, &EpochRecord::train_loss));
  state.insert("valid_loss", of(epochs_, &EpochRecord::valid_loss));
  state.insert("seconds", of(epochs_, &EpochRecord::seconds));
  for (size_t i = 0; i < epochs_.size(); ++i) {
    for (const MetricValue& metric : epochs_[i].metrics) {
      const std::string name = "metric " + metric.name;
      if (!state.contains(name)) {
        state.insert(
            name,
            column(std::vector<double>(epochs_.size(), std::nan(""))));
      }
      state[name].mutable_data_ptr<double>()[i] = metric.value;
    }
  }
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
  loaded.average_ = average.at(0);
  loaded.count_ = static_cast<int64_t>(average.at(1));
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
  const std::string prefix = "metric ";
  for (const auto& entry : state) {
    if (!entry.key().starts_with(prefix)) continue;
    const auto values = column(state, entry.key());
    for (size_t i = 0; i < loaded.epochs_.size(); ++i) {
      loaded.epochs_[i].metrics.push_back(
          {entry.key().substr(prefix.size()), values.at(i)});
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
    for (size_t i = 0; i < batches.size(); ++i) {
      CallRecord call{"", batches[i], epochs.at(i)};
      std::getline(lines, call.call);
      loaded.calls_.push_back(std::move(call));
    }
  }
  loaded.epoch_start_ = epoch_start_;
  *this = std::move(loaded);
}

}  // namespace tern
