#pragma once

#include <optional>
#include <vector>

#include "tern/callbacks/averages/averaged_weights.h"
#include "tern/callbacks/callback_checks.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Stochastic weight averaging: at the end of a fit, sets the weights to the
/// mean of the weights after each of the last epochs (Izmailov et al.,
/// "Averaging Weights Leads to Wider Optima and Better Generalization", 2018).
///
///   learn.add<Swa>({.lr = 1e-2}).fit(20);
///
/// When the fit ends, the running statistics of BatchNorm are recomputed for
/// the mean, in one pass over the training data in training mode, as with
/// `torch.optim.swa_utils.update_bn`. During the fit, validation evaluates the
/// current training weights; `learn.validate()` after the fit evaluates the
/// mean. The next fit continues from the mean and starts a new mean. Defaults
/// are Lightning's; fastai has no such callback.
class Swa final : public WeightAverage, public SetsHyperParameter {
 public:
  struct Options {
    /// Fraction of the epochs before averaging starts, in [0, 1). The last
    /// epoch is always included.
    double start = 0.8;
    /// Learning rates while averaging, one per layer group or a slice; unset:
    /// unchanged.
    std::optional<LearningRates> lr = {};
    /// Number of epochs over which the learning rates anneal to `lr` along a
    /// cosine; >= 1.
    int64_t anneal_epochs = 10;
  };

  /// \throws c10::ValueError if an option is out of its range.
  explicit Swa(Options options);
  Swa() : Swa(Options{}) {}

  /// \throws c10::ValueError if `lr` is set and another callback schedules
  ///         the learning rate.
  void on_add(Learner& learn) override;
  bool sets(HyperParameter hyper) const override {
    return options_.lr && hyper == HyperParameter::lr;
  }
  /// True if the last fit ended with the mean in the model.
  bool has_put_mean_in() const { return has_put_mean_in_; }

  /// \throws c10::NotImplementedError for a TorchScript model with BatchNorm,
  ///         whose statistics cannot be recomputed.
  /// \throws c10::ValueError for a model with BatchNorm if the training data is
  ///         a stream that cannot restart.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;

 private:
  Options options_;
  int64_t first_epoch_ = 0;  // first epoch in the mean
  int64_t averaged_ = 0;     // number of epochs in the mean
  bool has_put_mean_in_ = false;
  std::vector<double> start_rates_;
};

/// Recomputes the running statistics of the BatchNorm layers that training
/// updates, as means over the training data with equal weight for each batch.
/// Layers that the model's `train` keeps in eval mode are unchanged. If the
/// pass does not reach the end of the data, restores the old statistics.
/// \return true if the pass was complete, or if there are no such layers.
bool update_batch_norm(Learner& learn);

}  // namespace tern
