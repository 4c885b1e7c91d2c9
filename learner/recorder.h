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

/// What one epoch came to.
struct EpochRecord {
  int64_t epoch = 0;
  double train_loss = 0;  // smoothed, as fastai shows it; over all ranks
  double valid_loss = 0;  // NaN without validation data
  std::vector<MetricValue> metrics;
  double seconds = 0;  // training and validation
};

/// A fit that has begun, or a call between fits that has none of the batches:
/// freeze, lr_find, load.
struct CallRecord {
  std::string call;  // "fit_one_cycle(5, 0.01)", with the rates it came to
  int64_t first_batch = 0, first_epoch = 0;  // over all fits
  /// Of SaveModel's load of the best epoch: its place in `Recorder::epochs`; -1
  /// for other calls.
  int64_t loaded_epoch = -1;
};

/// What callbacks have given `Learner::log` under one name in training batches:
/// `values[i]` in batch `batches[i]`, from 0, of all fits.
///
///   void on_step(Learner& learn) override {
///     learn.log("grad_norm", norm_of(learn.gradients()));
///   }
///
/// The epoch gets the mean over its training batches. What is logged in a
/// validation batch becomes the mean over its samples, also of `validate`; what
/// is logged in on_epoch_end is taken as it is. A tensor is copied and read
/// with the losses, so that no batch waits for the device. All ranks log alike,
/// and the mean over them counts. Logged in both kinds of batches, a name is
/// validation's, and "train_NAME" training's. Passes of `get_preds` and
/// `predict` leave values out.
struct LoggedValues {
  std::string name;
  std::vector<int64_t> batches;
  std::vector<double> values;
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
  /// with each fit. A batch weighs what its loss counts (`Loss::count`).
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
  const std::vector<CallRecord>& calls() const { return calls_; }
  void add_call(std::string call, int64_t loaded_epoch = -1);
  /// Of the first input of the last epoch's first batch, as the model got it.
  const std::vector<int64_t>& input_shape() const { return input_shape_; }
  /// By name, in the order in which they were logged first.
  const std::vector<LoggedValues>& logged();
  /// Those of one batch, from 0, that were read already; the last of each name.
  std::vector<MetricValue> logged_in(int64_t batch) const;

  // ---- Plots over batches, with a mark where each later fit begins ----

  /// Training loss, raw and smoothed over all fits, the validation loss of each
  /// epoch, and a dot at that of an epoch that SaveModel loaded.
  Plot loss_plot(const PlotOptions& options = {});
  Plot learning_rate_plot();
  Plot momentum_plot();
  /// The metrics over epochs, with a mark at an epoch that SaveModel loaded.
  Plot metric_plot();
  /// The loss scale, logarithmic, with a dot at each skipped step.
  Plot loss_scale_plot();
  /// What callbacks logged as `name` in training batches, raw and smoothed.
  /// \throws c10::ValueError that lists the names there are.
  Plot logged_plot(const std::string& name, const PlotOptions& options = {});

  /// Write them as SVG, or as PNG where the name ends so.
  /// \throws IoError if the file cannot be written, c10::ValueError for another
  ///         ending.
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
  /// Of what has been read from the device: `flush` first.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kRecorder; }

  /// Reads the losses that are still on the device; one wait for it.
  void flush();

  // ---- For Learner::log ----

  /// \param value  0-dim kDouble, of the training batch that is being made.
  void log_batch(Learner& learn, const std::string& name, torch::Tensor value);
  void log_epoch(Learner& learn, const MetricValue& value);

 private:
  // What became of the scale in a batch of `pending_`.
  struct PendingScale {
    torch::Tensor record;  // of PrecisionPolicy; undefined without a scale
    bool has_stepped;
  };

  // What `values[index]` of a series will be.
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
  std::vector<double> loss_counts_;  // NaN where an older checkpoint has none
  std::vector<int64_t> skips_;
  std::vector<int64_t> epoch_ends_;  // losses recorded when epochs_[i] ended
  LossAverage average_;              // of this fit
  std::vector<EpochRecord> epochs_;
  std::vector<CallRecord> calls_;
  std::vector<int64_t> input_shape_;
  std::vector<LoggedValues> logged_;
  std::vector<PendingValue> pending_logged_;
  int64_t recorded_batch_ = -1;  // of this epoch, the last one
  bool epoch_is_recorded_ = false;
  std::chrono::steady_clock::time_point epoch_start_;
};

}  // namespace tern
