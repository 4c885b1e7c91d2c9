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
/// Counted on the device and read once an epoch. After MixUp or CutMix the
/// targets are those of the first image of each pair. When an epoch is resumed
/// in the middle, they are of the batches since.
class TrainMetrics final : public Callback {
 public:
  struct Options {
    /// Empty: copies of the Learner's.
    std::vector<Metric> metrics = {};
  };

  TrainMetrics() = default;
  explicit TrainMetrics(Options options) : options_(std::move(options)) {}

  /// \throws c10::ValueError if there is no metric.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }

 private:
  Options options_;
  std::vector<Metric> metrics_;  // of the fit that runs
  bool has_batches_ = false;
};

}  // namespace tern
