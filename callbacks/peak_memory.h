#pragma once

#include <memory>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/report/memory_meter.h"

namespace tern {

/// Measures the most memory that tensors took at once in each epoch, training
/// and validation.
///
///   learn.add<PeakMemory>().fit(3);
///   // PeakMemory: 512.3 MiB at most, in epoch 0
///
/// On CUDA it is the caching allocator's figure for the whole device; on a CPU,
/// what the training thread allocated since the fit began, so without weights
/// and data that were there before. JsonLinesLogger and TensorBoard write it
/// as the metric "peak_mib". As fastai v1's PeakMemMetric, but it asks the
/// allocator instead of polling in a thread.
class PeakMemory final : public Callback {
 public:
  /// Bytes, for each epoch of the last fit.
  const std::vector<int64_t>& epochs() const { return epochs_; }

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kEpochValues; }

 private:
  std::unique_ptr<MemoryMeter> meter_;  // while a fit runs
  std::vector<int64_t> epochs_;
};

}  // namespace tern
