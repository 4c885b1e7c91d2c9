#pragma once

#include "tern/callbacks/averages/averaged_weights.h"

namespace tern {

/// Keeps an exponential moving average of the weights, which is often the
/// better model (Polyak and Juditsky, 1992).
///
///   learn.add<Ema>({.decay = 0.9999}).fit_one_cycle(20);
///
/// After each step that was made: `average += (weight - average) * (1 -
/// decay)`, in fp32, of the master weights under to_fp16. Validation uses the
/// average. When a fit ends the model keeps the average, to be saved and used;
/// the next fit continues with the training weights, unless the model's weights
/// were changed or loaded in between: then with those, and a new average.
/// fastai has no such callback; the default decay is Lightning's.
class Ema final : public WeightAverage {
 public:
  struct Options {
    /// In [0, 1).
    double decay = 0.999;
    /// A smaller decay at first: step n uses min(decay, (1 + n) / (10 + n)), as
    /// TensorFlow does.
    bool warm_up = true;
    /// Whether the model keeps the average when a fit ends.
    bool at_end = true;
  };

  /// \throws c10::ValueError for a decay out of its range.
  explicit Ema(Options options);
  explicit Ema(double decay = 0.999) : Ema(Options{.decay = decay}) {}

  using WeightAverage::apply;
  using WeightAverage::restore;

  /// Returns what the average predicts, as a second network beside the one that
  /// trains: the teacher of a mean teacher (Tarvainen and Valpola, 2017).
  ///
  ///   const Tensors teacher = ema->forward(learn, inputs);
  ///
  /// In eval mode, without gradients, in the Learner's precision; outputs of 16
  /// bits become fp32. At any moment of a training step: what autograd has saved
  /// for backward stays as it is. Before the first step the average is the
  /// model's own weights. Each call copies the weights once.
  ///
  /// \param inputs  As the model gets them; they are moved to its device and
  ///                converted to its type.
  /// \throws c10::ValueError without an input.
  Tensors forward(Learner& learn, const Tensors& inputs);

  void on_remove(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
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
  // 0-dim kDouble, in place of `steps_` where only the device knows which steps
  // were made.
  torch::Tensor device_steps_;
};

}  // namespace tern
