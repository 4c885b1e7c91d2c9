#pragma once

#include "tern/data/batch.h"
#include "tern/data/random.h"
#include "tern/learner/callback.h"

namespace tern {

/// What MixUp and CutMix share: each training sample is mixed with another one
/// of its batch, its partner, and the loss knows both targets:
///
///   loss = mean(lambda * loss(pred, target) +
///               (1 - lambda) * loss(pred, partner's target))
///
/// So it is where targets are whole numbers, the indices of classes; floating
/// targets are mixed as the inputs are (fastai v2's rules). Validation sees
/// nothing of it. All numbers are drawn from (seed, iteration): a resumed run
/// draws the same.
class Mix : public Callback {
 public:
  /// \throws c10::ValueError beside another callback that mixes.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError for class targets when the loss cannot say what
  ///         each sample costs; `Loss::mean_of` can.
  void on_batch_begin(Learner& learn) override;

  /// Of the last training batch, on its device: how much of itself each sample
  /// kept, [N] kFloat in 0..1, and the places of the partners, [N] kLong.
  const torch::Tensor& lambdas() const { return lambdas_; }
  const torch::Tensor& partners() const { return partners_; }

 protected:
  /// \param seed  0: the Learner's.
  /// \throws c10::ValueError unless alpha is a finite number > 0.
  Mix(const char* name, double alpha, uint64_t seed);

  /// A copy on the device that nobody waits for.
  static torch::Tensor send(const torch::Tensor& host, torch::Device device);

  /// A number from the beta distribution (alpha, alpha), in 0..1.
  double draw_beta(SampleRng& rng) const;

 private:
  /// Draws the lambdas of a batch and mixes its inputs.
  /// \param partners  [N] kLong on the device.
  /// \return          [N] kFloat on the device.
  virtual torch::Tensor
  mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) = 0;

  double alpha_;
  uint64_t seed_;
  torch::Tensor lambdas_, partners_;
};

}  // namespace tern
