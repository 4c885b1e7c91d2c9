#pragma once

#include "tern/callbacks/mix.h"

namespace tern {

/// Trains on images with a box from another image (Yun et al., "CutMix:
/// Regularization Strategy to Train Strong Classifiers", 2019).
///
///   learn.add<CutMix>().fit_one_cycle(5);
///
/// As fastai v2: one lambda for the batch from the beta distribution (alpha,
/// alpha); a box of 1 - lambda of the area around a random centre, cut off at
/// the border, comes from the partner; lambda becomes the share of the area
/// that was kept. The first input must be floating, [N, ..., H, W].
class CutMix final : public Mix {
 public:
  struct Options {
    double alpha = 1.0;
    /// Key of the random numbers; 0: the Learner's seed.
    uint64_t seed = 0;
  };

  explicit CutMix(double alpha = 1.0) : CutMix(Options{.alpha = alpha}) {}
  explicit CutMix(Options options)
      : Mix("CutMix", options.alpha, options.seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

}  // namespace tern
