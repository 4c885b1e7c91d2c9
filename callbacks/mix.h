#pragma once

#include "tern/data/batch.h"
#include "tern/data/support/random.h"
#include "tern/learner/callback.h"

namespace tern {

/// Base of MixUp and CutMix: mixes each training sample with another sample of
/// its batch, its partner, and computes the loss on both targets:
///
///   loss = mean(lambda * loss(pred, target) +
///               (1 - lambda) * loss(pred, partner's target))
///
/// In the mean, each loss is weighted by the number of targets in it, so
/// ignored targets have no weight. This is how class indices (integer targets)
/// are mixed. Floating-point targets are mixed like the inputs, as in fastai
/// v2. Validation is unchanged. All random numbers are keyed by (seed,
/// iteration), so that a resumed run draws the same numbers.
class Mix : public Callback {
 public:
  /// \throws c10::ValueError if the Learner already has a Mix.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError if the targets are boxes or points.
  void on_train_begin(Learner& learn) override;
  /// \throws c10::ValueError for class targets if the loss has no per-sample
  ///         values; wrap it with `Loss::mean_of`.
  void on_batch_begin(Learner& learn) override;

  /// For the last training batch, on its device: each sample's lambda, which is
  /// the fraction that it kept of itself, [N] kFloat in 0..1, and the index of
  /// its partner, [N] kLong.
  const torch::Tensor& lambdas() const { return lambdas_; }
  const torch::Tensor& partners() const { return partners_; }
  OptionValues option_values() const override;

 protected:
  /// \param alpha  Parameter of the distribution Beta(alpha, alpha).
  /// \throws c10::ValueError unless alpha is finite and > 0.
  Mix(const char* name, double alpha, uint64_t seed);

  /// Draws a number in 0..1 from the beta distribution.
  double draw_beta(SampleRng& rng) const;

 private:
  /// Draws the lambdas of a batch and mixes its inputs.
  /// \param partners  [N] kLong on the device.
  /// \return          [N] kFloat in host memory.
  virtual torch::Tensor
  mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) = 0;

  double alpha_;
  uint64_t seed_;
  torch::Tensor lambdas_, partners_;
};

/// Trains on weighted means of two samples (Zhang et al., "mixup: Beyond
/// Empirical Risk Minimization", 2017).
///
///   learn.add<MixUp>(0.4).fit_one_cycle(5);
///
/// As in fastai v2, draws a lambda for each sample from the beta distribution
/// and takes the larger of lambda and 1 - lambda. Every floating-point input
/// becomes `lambda * input + (1 - lambda) * partner`.
class MixUp final : public Mix {
 public:
  /// \param seed  Seed of the random numbers; 0: the Learner's seed.
  explicit MixUp(double alpha = 0.4, uint64_t seed = 0)
      : Mix("MixUp", alpha, seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

/// Replaces a box of each training image with the same box of another image
/// (Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers",
/// 2019).
///
///   learn.add<CutMix>().fit_one_cycle(5);
///
/// As in fastai v2, one lambda is drawn for the batch. A box around a random
/// center, with 1 - lambda of the image's area, is cropped at the border and
/// copied from the partner. Lambda is then set to the fraction of the area that
/// was kept. The first input must be floating-point, [N, ..., H, W].
class CutMix final : public Mix {
 public:
  /// \param seed  As for MixUp.
  explicit CutMix(double alpha = 1.0, uint64_t seed = 0)
      : Mix("CutMix", alpha, seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

}  // namespace tern
