#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tern/learner/communicator.h"

namespace tern {

/// A loss and how much it counts, which is what it weighs beside others.
struct CountedLoss {
  double loss = std::numeric_limits<double>::quiet_NaN();
  double count = 0;
};

/// The mean over ranks, which all call it; NaN where nothing counts.
CountedLoss mean_over_ranks(Communicator& ranks, const CountedLoss& own);

/// The exponential average of batch losses that fastai shows: 0.98, debiased. A
/// loss weighs what it counts beside the first; one that counts nothing changes
/// nothing.
class LossAverage {
 public:
  static constexpr double kBeta = 0.98;

  void add(const CountedLoss& batch);
  /// NaN before the first that counts.
  double value() const { return sum_ / weight(); }
  bool is_empty() const { return batches_ == 0; }
  /// The average, to be averaged over ranks.
  CountedLoss counted() const { return {value(), unit_ * weight()}; }

  // What a checkpoint keeps; those before 0.1 had the first two.
  double sum() const { return sum_; }
  int64_t batches() const { return batches_; }
  double missing() const { return missing_; }
  double unit() const { return unit_; }
  void restore(double sum, int64_t batches, double missing, double unit);

 private:
  // What all batches weigh if each weighs 1, less what they weigh less.
  double weight() const {
    return 1 - std::pow(kBeta, static_cast<double>(batches_)) - missing_;
  }

  double sum_ = 0;  // not debiased
  int64_t batches_ = 0;
  double missing_ = 0;
  double unit_ = 0;  // what the first batch counts; 0: not known yet
};

}  // namespace tern
