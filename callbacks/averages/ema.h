#pragma once

#include "tern/callbacks/averages/averaged_weights.h"

namespace tern {

/// Keeps an exponential moving average of the weights, which often performs
/// better than the last weights (Polyak and Juditsky, 1992).
///
///   learn.add<Ema>({.decay = 0.9999}).fit_one_cycle(20);
///
/// Updates the average in fp32 after each step that was not skipped: `average
/// += (weight - average) * (1 - decay)`. Under to_fp16 it averages the master
/// weights. Evaluation uses the average. At the end of a fit the model keeps
/// the average, for saving and inference. The next fit continues with the
/// training weights. If the model's weights were changed or loaded in between,
/// it continues with these weights and starts a new average. fastai has no such
/// callback; the default decay is Lightning's.
class Ema final : public WeightAverage {
 public:
  struct Options {
    /// In [0, 1).
    double decay = 0.999;
    /// Starts with a smaller decay: step n uses min(decay, (1 + n) / (10 + n)),
    /// as in TensorFlow.
    bool warm_up = true;
    /// True: the model keeps the average when a fit ends.
    bool at_end = true;
  };

  /// \throws c10::ValueError if the decay is out of range.
  explicit Ema(Options options);
  explicit Ema(double decay = 0.999) : Ema(Options{.decay = decay}) {}

  using WeightAverage::apply;
  using WeightAverage::restore;

  /// Returns the predictions of the averaged weights, for example as the
  /// teacher of a mean teacher (Tarvainen and Valpola, 2017).
  ///
  ///   const Tensors teacher = ema->forward(learn, inputs);
  ///
  /// Runs in eval mode, without gradients, in the Learner's precision; 16-bit
  /// outputs are converted to fp32. Can be called at any point of a training
  /// step, since it does not change what autograd has saved for backward.
  /// Before the first step the average equals the model's own weights. Each
  /// call copies the weights once.
  ///
  /// \param inputs  As for the model; they are moved to its device and
  ///                converted to its dtype.
  /// \throws c10::ValueError if there is no input.
  Tensors forward(Learner& learn, const Tensors& inputs);

  void on_remove(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  /// Updates the average. on_step_end updates it only if the optimizer steps
  /// after on_batch_end, because the data ended within an accumulation window.
  void on_batch_end(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  void on_eval_begin(Learner& learn) override;
  void on_eval_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  void on_load(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;

 private:
  void forget();
  void follow_on_device(const torch::Tensor& overflowed);
  int64_t steps() const;

  Options options_;
  int64_t steps_ = 0;
  // 0-dim kDouble; replaces `steps_` when only the device knows which steps
  // were skipped.
  torch::Tensor device_steps_;
};

}  // namespace tern
