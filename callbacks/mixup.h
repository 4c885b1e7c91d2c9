#pragma once

#include "tern/callbacks/mix.h"

namespace tern {

/// Trains on weighted means of two samples (Zhang et al., "mixup: Beyond
/// Empirical Risk Minimization", 2017).
///
///   learn.add<MixUp>(0.4).fit_one_cycle(5);
///
/// As fastai v2: a lambda for each sample from the beta distribution (alpha,
/// alpha), of lambda and 1 - lambda the larger; `input = lambda * input + (1 -
/// lambda) * partner` for every floating input.
class MixUp final : public Mix {
 public:
  struct Options {
    double alpha = 0.4;
    /// Key of the random numbers; 0: the Learner's seed.
    uint64_t seed = 0;
  };

  explicit MixUp(double alpha = 0.4) : MixUp(Options{.alpha = alpha}) {}
  explicit MixUp(Options options) : Mix("MixUp", options.alpha, options.seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

}  // namespace tern
