#pragma once

#include "tern/data/batch.h"
#include "tern/data/support/random.h"
#include "tern/learner/callback.h"

namespace tern {

/// Base of MixUp and CutMix: mixes each training sample with another one of its
/// batch, its partner, and gives the loss both targets:
///
///   loss = mean(lambda * loss(pred, target) +
///               (1 - lambda) * loss(pred, partner's target))
///
/// where each target weighs what it counts in the loss: an ignored one nothing.
/// That is how class indices (integer targets) are mixed; floating targets are
/// mixed like the inputs, as in fastai v2. Validation is not changed. All
/// random numbers are keyed by (seed, iteration), so a resumed run draws the
/// same.
class Mix : public Callback {
 public:
  /// \throws c10::ValueError beside another Mix.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError for boxes and points.
  void on_train_begin(Learner& learn) override;
  /// \throws c10::ValueError for class targets when the loss has no per-sample
  ///         values; `Loss::mean_of` has.
  void on_batch_begin(Learner& learn) override;

  /// Of the last training batch, on its device: the share of itself that each
  /// sample kept, [N] kFloat in 0..1, and its partner's index, [N] kLong.
  const torch::Tensor& lambdas() const { return lambdas_; }
  const torch::Tensor& partners() const { return partners_; }
  OptionValues option_values() const override;

 protected:
  /// \param alpha  Of the beta distribution (alpha, alpha).
  /// \throws c10::ValueError unless alpha is finite and > 0.
  Mix(const char* name, double alpha, uint64_t seed);

  /// A number from the beta distribution, in 0..1.
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
/// As fastai v2: draws a lambda for each sample from the beta distribution and
/// takes the larger of lambda and 1 - lambda; `input = lambda * input +
/// (1 - lambda) * partner` for every floating input.
class MixUp final : public Mix {
 public:
  /// \param seed  Key of the random numbers; 0: the Learner's seed.
  explicit MixUp(double alpha = 0.4, uint64_t seed = 0)
      : Mix("MixUp", alpha, seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

/// Trains on images with a box from another image (Yun et al., "CutMix:
/// Regularization Strategy to Train Strong Classifiers", 2019).
///
///   learn.add<CutMix>().fit_one_cycle(5);
///
/// As fastai v2: draws one lambda for the batch; a box of 1 - lambda of the
/// area around a random center, cropped at the border, comes from the partner;
/// lambda becomes the share of the area that was kept. The first input must be
/// floating, [N, ..., H, W].
class CutMix final : public Mix {
 public:
  /// \param seed  As MixUp's.
  explicit CutMix(double alpha = 1.0, uint64_t seed = 0)
      : Mix("CutMix", alpha, seed) {}

 private:
  torch::Tensor mix(Tensors&, const torch::Tensor&, SampleRng&) override;
};

}  // namespace tern
