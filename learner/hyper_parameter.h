#pragma once

#include <string>

#include <torch/optim/optimizer.h>

namespace tern {

/// What a schedule can move.
enum class HyperParameter {
  lr,
  momentum,  // Adam's first beta too
  weight_decay,
};

/// "lr", "momentum" or "weight_decay".
std::string to_string(HyperParameter hyper);

}  // namespace tern

// What schedules change from step to step, under one name for every optimizer
// of LibTorch: SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS. The learning rate has
// such a name already: `OptimizerOptions::get_lr` and `set_lr`.
namespace tern::optim {

/// SGD's or RMSprop's momentum, Adam's or AdamW's first beta; 0 for optimizers
/// without momentum.
double momentum(const torch::optim::OptimizerOptions& options);

/// Whether `set_momentum` can be called.
bool has_momentum(const torch::optim::OptimizerOptions& options);

/// \throws c10::ValueError unless 0 <= value < 1.
/// \throws c10::NotImplementedError for an optimizer without momentum, unless
///         the value is 0.
void set_momentum(torch::optim::OptimizerOptions& options, double value);

/// 0 for an optimizer without weight decay.
double weight_decay(const torch::optim::OptimizerOptions& options);

/// Whether `set_weight_decay` can be called.
bool has_weight_decay(const torch::optim::OptimizerOptions& options);

/// \throws c10::ValueError for a negative value.
/// \throws c10::NotImplementedError for an optimizer without weight decay,
///         unless the value is 0.
void set_weight_decay(torch::optim::OptimizerOptions& options, double value);

}  // namespace tern::optim
