#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/train_state.h"

namespace tern {

struct Plot;  // learner/report/plot.h

/// What one epoch came to.
struct EpochRecord {
  int64_t epoch = 0;
  double train_loss = 0;  // smoothed, as fastai shows it; the mean over ranks
  double valid_loss = 0;  // NaN without validation data
  std::vector<MetricValue> metrics;
  double seconds = 0;  // training and validation
};

/// Remembers losses, rates and epochs over all fits of a Learner.
///
/// Losses stay on a GPU until somebody looks: `losses()`, a redraw of the
/// progress line, or the end of an epoch reads all that are new in one go.
class Recorder final : public Callback {
 public:
  /// Training loss of each batch.
  const std::vector<double>& losses();
  /// The same, smoothed: exponential average with 0.98, debiased, restarted
  /// with each fit.
  const std::vector<double>& smooth_losses();
  /// Those of the above that were read already: never waits.
  const std::vector<double>& losses_read() const { return losses_; }
  const std::vector<double>& smooth_losses_read() const {
    return smooth_losses_;
  }
  /// Learning rate and momentum of the last layer group, for each batch.
  const std::vector<double>& learning_rates() const { return lrs_; }
  const std::vector<double>& momentums() const { return momentums_; }
  /// Loss scale after each batch; NaN where none was used.
  const std::vector<double>& loss_scales();
  /// Numbers, from 0, of the batches whose step was skipped for an overflow.
  const std::vector<int64_t>& skipped_steps();
  /// Epochs of all fits, in order.
  const std::vector<EpochRecord>& epochs() const { return epochs_; }

  // ---- Pictures, over batches with a mark where a fit begins;
  //      learner/report/recorder_plots.cpp ----

  /// Training loss, raw and smoothed over all fits, and the validation loss of
  /// each epoch.
  Plot loss_plot();
  Plot learning_rate_plot();
  Plot momentum_plot();
  /// The metrics over epochs.
  Plot metric_plot();
  /// The loss scale, logarithmic, with a dot at each skipped step.
  Plot loss_scale_plot();

  /// Write them as SVG, or as PNG where the name ends so.
  /// \throws IoError if the file cannot be written, c10::ValueError for another
  ///         ending.
  void plot_losses(const std::filesystem::path& file);
  void plot_learning_rates(const std::filesystem::path& file);
  void plot_momentums(const std::filesystem::path& file);
  void plot_metrics(const std::filesystem::path& file);
  void plot_loss_scales(const std::filesystem::path& file);

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  /// Of what has been read from the device: `flush` first.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kRecorder; }

  /// Reads the losses that are still on the device; one wait for it.
  void flush();

 private:
  // What became of the scale in a batch of `pending_`.
  struct PendingScale {
    torch::Tensor record;  // of PrecisionPolicy; undefined without a scale
    bool has_stepped;
  };

  Plot batch_plot(const std::string& title, const std::string& y_label);
  void record(double loss);
  void flush_scales(int64_t first_batch);
  void record_scale(int64_t batch, double scale, bool was_skipped);

  std::vector<torch::Tensor> pending_;
  std::vector<PendingScale> pending_scales_;
  std::vector<double> losses_, smooth_losses_, lrs_, momentums_, scales_;
  std::vector<int64_t> skips_;
  std::vector<int64_t> fit_begins_;  // losses recorded when each fit began
  std::vector<int64_t> epoch_ends_;  // losses recorded when epochs_[i] ended
  double average_ = 0;               // of this fit, not debiased
  int64_t count_ = 0;                // losses in average_
  std::vector<EpochRecord> epochs_;
  std::chrono::steady_clock::time_point epoch_start_;
};

}  // namespace tern
