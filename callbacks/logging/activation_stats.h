#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/callback.h"
#include "tern/learner/report/forward_hooks.h"

namespace tern {

/// Mean, standard deviation and fraction of near-zero elements of one tensor,
/// for each recorded training batch.
struct LayerStats {
  std::string name;
  std::vector<int64_t> iterations;
  std::vector<double> mean, std, near_zero;
};

/// Records statistics of activations and gradients, which show dead or
/// exploding layers early.
///
///   learn.add<ActivationStats>({.every = 5}).fit(1);
///   for (const auto& layer : learn.find<ActivationStats>()->activations()) ...
///
/// Activations are the outputs of the children of each Sequential
/// (`ForwardHooks`). Gradients are recorded for each parameter, unscaled and
/// before clipping; for them, near zero means at most 1e-8. Statistics stay on
/// the device and are read together with the losses, so that no step
/// synchronizes with the device. Follows fastai v2's ActivationStats, with its
/// threshold; gradients are Tern's addition. A second fit adds to the results
/// of the first.
class ActivationStats final : public Callback {
 public:
  struct Options {
    /// Records every `every`-th training batch; >= 1.
    int64_t every = 10;
    /// Largest absolute value of an activation that counts as near zero; >= 0.
    double near_zero = 0.05;
  };

  /// \throws c10::ValueError if an option is out of its range.
  explicit ActivationStats(Options options);
  ActivationStats() : ActivationStats(Options{}) {}

  const std::vector<LayerStats>& activations() const { return activations_; }
  const std::vector<LayerStats>& gradients() const { return gradients_; }

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_step(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kGradientClip - 1; }
  OptionValues option_values() const override;

 private:
  void read();

  Options options_;
  std::unique_ptr<ForwardHooks> hooks_;  // while a fit runs
  bool is_recording_ = false;
  std::vector<LayerStats> activations_, gradients_;
  // By iteration and layer; [3] each, on the device; read with the losses.
  std::map<std::pair<int64_t, LayerStats*>, torch::Tensor> pending_;
};

}  // namespace tern
