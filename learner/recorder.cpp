#include "tern/learner/recorder.h"

#include <cmath>

#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/optim/hyper_parameters.h"
#include "tern/learner/plot.h"

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

void Recorder::flush() {
  if (pending_.empty()) return;
  const torch::Tensor values =
      torch::stack(pending_).to(torch::kCPU, torch::kDouble);
  pending_.clear();
  for (int64_t i = 0; i < values.size(0); ++i) {
    record(values.const_data_ptr<double>()[i]);
  }
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
  if (state.loss.is_cpu() && state.loss.scalar_type() == torch::kFloat) {
    // Kept, the small tensor would sit between blocks that the next step wants
    // back in one piece.
    flush();
    record(*state.loss.const_data_ptr<float>());
  } else {
    pending_.push_back(state.loss);
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
       count_ ? smooth_losses_.back() : std::nan(""),
       state.valid_loss,
       state.last_metrics,
       time.count()});
  epoch_ends_.push_back(static_cast<int64_t>(losses_.size()));
}

// After an exception the device may be unusable: what it still holds is lost.
void Recorder::on_train_end(Learner& learn) {
  if (learn.state().failed) pending_.clear();
}

void Recorder::plot_losses(const std::filesystem::path& file) {
  flush();
  Plot plot;
  plot.title = "Losses";
  plot.x_label = "batches";
  plot.y_label = "loss";
  Curve batch{"train, each batch", {}, {}, 0.35};
  Curve smooth{"train, smoothed", {}, {}, 1};
  for (size_t i = 0; i < losses_.size(); ++i) {
    batch.x.push_back(static_cast<double>(i + 1));
    smooth.x.push_back(static_cast<double>(i + 1));
  }
  batch.y = losses_;
  smooth.y = smooth_losses_;
  Curve valid{"valid", {}, {}, 1};
  for (size_t i = 0; i < epochs_.size(); ++i) {
    valid.x.push_back(static_cast<double>(epoch_ends_[i]));
    valid.y.push_back(epochs_[i].valid_loss);
  }
  plot.curves = {batch, smooth, valid};
  save_svg(file, plot);
}

}  // namespace tern
