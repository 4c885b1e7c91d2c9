#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

namespace tern {

/// Learning rates for the layer groups of a model, in the forms that fastai
/// accepts:
///
///   3e-3              every group the same
///   {1e-5, 1e-3}      a slice: first group 1e-5, last 1e-3, geometric between
///   {1e-5, 1e-4, 1e-3} with three groups: one each
///   {}                the Learner's learning rate for every group
///   LearningRates::per_group({...})   one each, even for two groups
///   LearningRates::up_to(1e-3)        last group 1e-3, the others 1e-4
class LearningRates {
 public:
  LearningRates() = default;
  LearningRates(double lr) : rates_{lr} {}  // NOLINT: implicit on purpose
  LearningRates(std::initializer_list<double> rates)  // NOLINT
      : rates_(rates), is_slice_(rates.size() == 2) {}
  static LearningRates per_group(std::vector<double> rates);
  static LearningRates up_to(double last);

  bool empty() const { return rates_.empty(); }

  /// Returns one learning rate for each of `groups` groups.
  /// \throws c10::ValueError if a learning rate is negative or not finite, or
  ///         if their number matches none of the forms above.
  std::vector<double> resolve(int64_t groups, double default_lr) const;

 private:
  std::vector<double> rates_;
  bool is_slice_ = false;
  bool is_up_to_ = false;
};

/// The hyperparameters that a schedule can change.
enum class HyperParameter {
  lr,
  momentum,  // also Adam's first beta
  weight_decay,
};

/// Returns "lr", "momentum" or "weight_decay".
std::string to_string(HyperParameter hyper);

}  // namespace tern

// Access to the hyperparameters that schedules change from step to step, with
// the same functions for every optimizer of LibTorch: SGD, Adam, AdamW,
// RMSprop, Adagrad, LBFGS. For the learning rate, LibTorch has such functions:
// `OptimizerOptions::get_lr` and `set_lr`.
namespace tern::optim {

/// Returns the momentum of SGD or RMSprop, or the first beta of Adam or AdamW;
/// 0 for optimizers without momentum.
double momentum(const torch::optim::OptimizerOptions& options);

/// True if the optimizer has a momentum, so that `set_momentum` can be called.
bool has_momentum(const torch::optim::OptimizerOptions& options);

/// \throws c10::ValueError unless 0 <= value < 1.
/// \throws c10::NotImplementedError for an optimizer without momentum, unless
///         the value is 0.
void set_momentum(torch::optim::OptimizerOptions& options, double value);

/// Returns the weight decay; 0 for an optimizer without weight decay.
double weight_decay(const torch::optim::OptimizerOptions& options);

/// \throws c10::ValueError for a negative value.
/// \throws c10::NotImplementedError for an optimizer without weight decay,
///         unless the value is 0.
void set_weight_decay(torch::optim::OptimizerOptions& options, double value);

}  // namespace tern::optim
