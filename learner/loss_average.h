#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tern/learner/communicator.h"

namespace tern {

/// A loss and its weight, `Loss::count`.
struct CountedLoss {
  double loss = std::numeric_limits<double>::quiet_NaN();
  double count = 0;
};

/// Returns the weighted mean over ranks; NaN if all counts are 0. Called by all
/// ranks.
CountedLoss mean_over_ranks(Communicator& ranks, const CountedLoss& own);

/// The exponential moving average of batch losses that fastai shows: beta 0.98,
/// debiased. Each loss is weighted by its count relative to the first loss's
/// count. A loss with count 0 changes nothing.
class LossAverage {
 public:
  static constexpr double kBeta = 0.98;

  void add(const CountedLoss& batch);
  /// NaN before the first loss with a nonzero count.
  double value() const { return sum_ / weight(); }
  bool is_empty() const { return batches_ == 0; }
  /// Returns the average with its weight, for the mean over ranks.
  CountedLoss counted() const { return {value(), unit_ * weight()}; }

  // State for a checkpoint; checkpoints before 0.1 contain only the first two
  // values.
  double sum() const { return sum_; }
  int64_t batches() const { return batches_; }
  double missing() const { return missing_; }
  double unit() const { return unit_; }
  void restore(double sum, int64_t batches, double missing, double unit);

 private:
  // The total weight if every batch had weight 1, minus the missing weight.
  double weight() const {
    return 1 - std::pow(kBeta, static_cast<double>(batches_)) - missing_;
  }

  double sum_ = 0;  // not debiased
  int64_t batches_ = 0;
  double missing_ = 0;
  double unit_ = 0;  // count of the first batch; 0: none yet
};

}  // namespace tern
