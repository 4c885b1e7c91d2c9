#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/loss_average.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/train_state.h"

namespace tern {

/// Results of one epoch.
struct EpochRecord {
  int64_t epoch = 0;
  double train_loss = 0;  // smoothed as in fastai, averaged over all ranks
  double valid_loss = 0;  // NaN without validation data
  std::vector<MetricValue> metrics;
  double seconds = 0;  // training and validation
};

/// A fit, or a call between fits such as freeze, lr_find or load, which has no
/// batches.
struct CallRecord {
  std::string call;  // "fit_one_cycle(5, 0.01)", with the learning rates used
  int64_t first_batch = 0, first_epoch = 0;  // over all fits
  /// If SaveModel loaded the best epoch: its index in `Recorder::epochs`. -1
  /// for other calls.
  int64_t loaded_epoch = -1;
};

/// The values that callbacks passed to `Learner::log` under one name in
/// training batches: `values[i]` was logged in batch `batches[i]`, counted from
/// 0 over all fits.
///
///   void on_step(Learner& learn) override {
///     learn.log("grad_norm", norm_of(learn.gradients()));
///   }
///
/// The epoch's metric is the mean over its training batches. Values logged in
/// validation batches, including during `validate`, are averaged over samples;
/// a value logged in on_epoch_end is used directly. A tensor is copied and read
/// together with the losses, so that no batch synchronizes with the device. All
/// ranks must log the same names; the mean over ranks is used.
///
/// If a name is logged in both kinds of batches, "NAME" is the validation value
/// and "train_NAME" the training value. Values logged during `get_preds` and
/// `predict` are dropped.
struct LoggedValues {
  std::string name;
  std::vector<int64_t> batches;
  std::vector<double> values;
};

/// Records losses, learning rates and epochs over all fits of a Learner.
///
/// Losses stay on the GPU until they are needed: `losses()`, an update of the
/// progress line, or the end of an epoch reads all new losses in one transfer.
class Recorder final : public Callback {
 public:
  /// Returns the training loss of each batch.
  const std::vector<double>& losses();
  /// Returns the smoothed losses: an exponential moving average with beta 0.98,
  /// debiased, which starts again with each fit. Each batch is weighted by
  /// `Loss::count`.
  const std::vector<double>& smooth_losses();
  /// Return only the losses that were already read from the device. These
  /// functions never synchronize.
  const std::vector<double>& losses_read() const { return losses_; }
  const std::vector<double>& smooth_losses_read() const {
    return smooth_losses_;
  }
  /// Learning rate and momentum of the last layer group, for each batch.
  const std::vector<double>& learning_rates() const { return lrs_; }
  const std::vector<double>& momentums() const { return momentums_; }
  /// Loss scale after each batch; NaN where none was used.
  const std::vector<double>& loss_scales();
  /// Indices, from 0, of the batches whose step was skipped because of an
  /// overflow.
  const std::vector<int64_t>& skipped_steps();
  /// Epochs of all fits, in order.
  const std::vector<EpochRecord>& epochs() const { return epochs_; }
  const std::vector<CallRecord>& calls() const { return calls_; }
  void add_call(std::string call, int64_t loaded_epoch = -1);
  /// Returns the shape of the first input of the last epoch's first batch, as
  /// the model received it.
  const std::vector<int64_t>& input_shape() const { return input_shape_; }
  /// Returns the logged values, one entry per name, in the order in which the
  /// names were first logged.
  const std::vector<LoggedValues>& logged();
  /// Returns the values logged in one batch, counted from 0, that were already
  /// read from the device. If a name was logged several times, the last value
  /// counts.
  std::vector<MetricValue> logged_in(int64_t batch) const;

  // ---- Plots over batches, with a mark where each later fit begins ----

  /// Returns a plot of the training loss, raw and smoothed over all fits, and
  /// the validation loss of each epoch. A dot marks an epoch that SaveModel
  /// loaded.
  Plot loss_plot(const PlotOptions& options = {});
  Plot learning_rate_plot();
  Plot momentum_plot();
  /// Returns a plot of the metrics over epochs. A mark shows an epoch that
  /// SaveModel loaded.
  Plot metric_plot();
  /// Returns a plot of the loss scale on a logarithmic axis. A dot marks each
  /// skipped step.
  Plot loss_scale_plot();
  /// Returns a plot of the values logged as `name` in training batches, raw and
  /// smoothed.
  /// \throws c10::ValueError listing the existing names.
  Plot logged_plot(const std::string& name, const PlotOptions& options = {});

  /// Write these plots as SVG or PNG, depending on the file's extension.
  /// \throws IoError if the file cannot be written, c10::ValueError for any
  ///         other extension.
  ///
  ///   learn.recorder().plot_losses("losses.svg", {.log_y = true});
  void plot_losses(
      const std::filesystem::path& file,
      const PlotOptions& options = {});
  void plot_learning_rates(const std::filesystem::path& file);
  void plot_momentums(const std::filesystem::path& file);
  void plot_metrics(const std::filesystem::path& file);
  void plot_loss_scales(const std::filesystem::path& file);
  void plot_logged(
      const std::filesystem::path& file,
      const std::string& name,
      const PlotOptions& options = {});

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  /// Contains only values that were read from the device; call `flush` first.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kRecorder; }

  /// Reads the losses that are still on the device, with one synchronization.
  void flush();

  // ---- For Learner::log ----

  /// \param value  0-dim kDouble, of the current training batch.
  void log_batch(Learner& learn, const std::string& name, torch::Tensor value);
  void log_epoch(Learner& learn, const MetricValue& value);

 private:
  // The loss scale after a batch of `pending_`.
  struct PendingScale {
    torch::Tensor record;  // loss_scale_record; undefined without a scale
    bool has_stepped;
  };

  // The value of `values[index]` of a series, not yet read from the device.
  struct PendingValue {
    size_t series, index;
    torch::Tensor value;
  };

  Plot batch_plot(const std::string& title, const std::string& y_label);
  std::vector<int64_t> loaded_epochs() const;
  void read_logged();
  void forget_logged_from(int64_t batch);
  void average_logged(Learner& learn);
  void record(double loss);
  void flush_scales(int64_t first_batch);
  void record_scale(int64_t batch, double scale, bool was_skipped);

  std::vector<torch::Tensor> pending_;
  std::vector<PendingScale> pending_scales_;
  std::vector<double> losses_, smooth_losses_, lrs_, momentums_, scales_;
  std::vector<double> loss_counts_;  // NaN if unknown (older checkpoints)
  std::vector<int64_t> skips_;
  std::vector<int64_t> epoch_ends_;  // number of losses when epochs_[i] ended
  LossAverage average_;              // of this fit
  std::vector<EpochRecord> epochs_;
  std::vector<CallRecord> calls_;
  std::vector<int64_t> input_shape_;
  std::vector<LoggedValues> logged_;
  std::vector<PendingValue> pending_logged_;
  int64_t recorded_batch_ = -1;  // last one of this epoch
  bool epoch_is_recorded_ = false;
  std::chrono::steady_clock::time_point epoch_start_;
};

}  // namespace tern
