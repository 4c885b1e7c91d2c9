#include "tern/learner/recorder.h"

#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

constexpr double kBeta = 0.98;
// Bounds what waits on the device when nobody looks for a long time.
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

const std::vector<double>& Recorder::loss_scales() {
  flush();
  return scales_;
}

const std::vector<int64_t>& Recorder::skipped_steps() {
  flush();
  return skips_;
}

void Recorder::flush() {
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

void Recorder::record(double loss) {
  ++count_;
  average_ = kBeta * average_ + (1 - kBeta) * loss;
  losses_.push_back(loss);
  smooth_losses_.push_back(
      average_ / (1 - std::pow(kBeta, static_cast<double>(count_))));
}

void Recorder::on_train_begin(Learner& learn) {
  average_ = 0;
  count_ = 0;
  learn.state().smooth_loss.reset();
}

void Recorder::on_epoch_begin(Learner&) {
  epoch_start_ = std::chrono::steady_clock::now();
}

void Recorder::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const PrecisionPolicy* const precision = learn.parts().precision;
  if (state.loss.is_cpu() && state.loss.scalar_type() == torch::kFloat) {
    // Kept, the small tensor would sit between blocks that the next step wants
    // back in one piece.
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
  if (pending_.size() >= kMaxPending) flush();
}

void Recorder::on_epoch_end(Learner& learn) {
  flush();
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - epoch_start_;
  const TrainState& state = learn.state();
  epochs_.push_back(
      {static_cast<int64_t>(epochs_.size()),
       learn.communicator().mean(count_ ? smooth_losses_.back() : std::nan("")),
       state.valid_loss,
       state.last_metrics,
       time.count()});
  epoch_ends_.push_back(static_cast<int64_t>(losses_.size()));
}

// After an exception the device may be unusable: what it still holds is lost.
void Recorder::on_train_end(Learner& learn) {
  if (!learn.state().failed) return;
  pending_.clear();
  pending_scales_.clear();
  const size_t read = losses_.size();
  lrs_.resize(read);
  momentums_.resize(read);
}

namespace {

torch::Tensor column(const std::vector<double>& values) {
  return torch::tensor(values, torch::kDouble);
}

std::vector<double> column(const StateDict& state, const std::string& name) {
  const torch::Tensor* const values = state.find(name);
  TORCH_CHECK_VALUE(
      values && values->dim() == 1 && values->scalar_type() == torch::kDouble,
      fmt::format(
          "[Recorder] the state does not hold \"{}\"; expected that of a "
          "Recorder.",
          name));
  const auto* const data = values->const_data_ptr<double>();
  return {data, data + values->numel()};
}

}  // namespace

// Metrics are columns "metric <name>"; an epoch without one has a NaN there.
StateDict Recorder::state_dict() const {
  std::vector<double> numbers, train, valid, seconds, ends, skips;
  for (const EpochRecord& epoch : epochs_) {
    numbers.push_back(static_cast<double>(epoch.epoch));
    train.push_back(epoch.train_loss);
    valid.push_back(epoch.valid_loss);
    seconds.push_back(epoch.seconds);
  }
  for (const int64_t end : epoch_ends_) {
    ends.push_back(static_cast<double>(end));
  }
  for (const int64_t batch : skips_) {
    skips.push_back(static_cast<double>(batch));
  }
  StateDict state;
  state.insert("losses", column(losses_));
  state.insert("smooth_losses", column(smooth_losses_));
  state.insert("lrs", column(lrs_));
  state.insert("momentums", column(momentums_));
  state.insert("loss_scales", column(scales_));
  state.insert("skipped_steps", column(skips));
  state.insert("average", column({average_, static_cast<double>(count_)}));
  state.insert("epochs", column(numbers));
  state.insert("epoch_ends", column(ends));
  state.insert("train_loss", column(train));
  state.insert("valid_loss", column(valid));
  state.insert("seconds", column(seconds));
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
  return state;
}

void Recorder::load_state_dict(const StateDict& state) {
  Recorder loaded;
  loaded.losses_ = column(state, "losses");
  loaded.smooth_losses_ = column(state, "smooth_losses");
  loaded.lrs_ = column(state, "lrs");
  loaded.momentums_ = column(state, "momentums");
  loaded.scales_ = column(state, "loss_scales");
  for (const double batch : column(state, "skipped_steps")) {
    loaded.skips_.push_back(static_cast<int64_t>(batch));
  }
  const auto average = column(state, "average");
  loaded.average_ = average.at(0);
  loaded.count_ = static_cast<int64_t>(average.at(1));
  const auto numbers = column(state, "epochs");
  const auto train = column(state, "train_loss");
  const auto valid = column(state, "valid_loss");
  const auto seconds = column(state, "seconds");
  for (const double end : column(state, "epoch_ends")) {
    loaded.epoch_ends_.push_back(static_cast<int64_t>(end));
  }
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
  loaded.epoch_start_ = epoch_start_;
  *this = std::move(loaded);
}

}  // namespace tern
