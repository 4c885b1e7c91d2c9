#pragma once

#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/metric.h"

namespace tern {

/// Computes metrics on the training batches, from the outputs of each training
/// step, and logs them once per epoch, for example as "train_accuracy".
/// Compared with the validation metrics, they show overfitting. Like fastai's
/// Recorder(train_metrics=True).
///
///   learn.add<TrainMetrics>().fit(3);
///
/// Accumulates on the device and reads the values once per epoch; only decoding
/// a detector's boxes synchronizes with the device in each step. After MixUp or
/// CutMix, uses the targets of the first image of each pair. If a run resumes
/// in the middle of an epoch, the metrics continue from the checkpoint; a
/// custom metric without state_dict is NaN for that epoch.
class TrainMetrics final : public Callback {
 public:
  struct Options {
    /// Empty: the Learner's metrics.
    std::vector<Metric> metrics = {};
  };

  TrainMetrics() = default;
  explicit TrainMetrics(Options options) : options_(std::move(options)) {}

  /// Returns the metrics that each fit copies.
  const std::vector<Metric>& metrics(const Learner& learn) const;

  /// \throws c10::ValueError if there is no metric.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  /// Returns what the metrics have counted in the running epoch on this rank.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  OptionValues option_values() const override;

 private:
  Options options_;
  std::vector<Metric> metrics_;  // of the running fit
  torch::Device device_ = torch::kCPU;
  bool has_batches_ = false;
  // True if the counts before a resume in the middle of the epoch are missing.
  std::vector<bool> is_partial_;
};

}  // namespace tern
