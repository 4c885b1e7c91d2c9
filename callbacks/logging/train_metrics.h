#pragma once

#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/metric.h"

namespace tern {

/// Computes metrics of the training batches too, each in the state the model
/// was in then, and logs them with the epoch as "train_accuracy". fastai's
/// Recorder(train_metrics=True); beside validation they show overfitting.
///
///   learn.add<TrainMetrics>().fit(3);
///
/// Counted on the device and read once an epoch; only decoding a detector's boxes
/// waits for the device in each step. After MixUp or CutMix the
/// targets are those of the first image of each pair. A training that is resumed
/// in the middle of an epoch goes on counting; a metric of yours whose class has
/// no state_dict is NaN in that epoch.
class TrainMetrics final : public Callback {
 public:
  struct Options {
    /// Empty: copies of the Learner's.
    std::vector<Metric> metrics = {};
  };

  TrainMetrics() = default;
  explicit TrainMetrics(Options options) : options_(std::move(options)) {}

  /// Those whose copies it counts in.
  const std::vector<Metric>& metrics(const Learner& learn) const;

  /// \throws c10::ValueError if there is no metric.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  /// What the metrics have counted of a running epoch, on each rank its own.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  OptionValues option_values() const override;

 private:
  Options options_;
  std::vector<Metric> metrics_;  // of the fit that runs
  torch::Device device_ = torch::kCPU;
  bool has_batches_ = false;
  // Resumed in the middle of the epoch without what was counted before.
  std::vector<bool> is_partial_;
};

}  // namespace tern
