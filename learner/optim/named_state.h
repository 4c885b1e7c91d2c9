#pragma once

#include <string>
#include <unordered_map>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern::optim {

/// Maps an optimizer's parameters to their names in the model.
using ParameterNames = std::unordered_map<c10::TensorImpl*, std::string>;

/// Returns placeholder names "0", "1", ... in the optimizer's order.
ParameterNames numbered_names(const torch::optim::Optimizer& optimizer);

/// Returns, for example, "tern::optim::AdamW".
std::string class_name(const torch::optim::Optimizer& optimizer);

/// Returns the optimizer's complete state as tensors: for each parameter
/// entries such as "layer1.weight/exp_avg", with PyTorch's names, and for each
/// group "0/lr", "0/momentum" and "0/weight_decay", which schedules change.
/// Tensors share memory with the optimizer; numbers are 0-dim kLong and
/// kDouble.
///
/// Supports the fused optimizers and torch::optim's SGD, Adam, AdamW, RMSprop
/// and Adagrad.
/// \throws c10::NotImplementedError for the state of any other optimizer,
///         c10::ValueError for a parameter without a name.
StateDict named_state(
    torch::optim::Optimizer& optimizer,
    const ParameterNames& names);

/// Restores a state from `named_state`, as copies on the parameters' devices.
/// \throws c10::ValueError if parameters, shapes, groups or the kind of
///         optimizer differ; the optimizer is then unchanged.
void load_named_state(
    torch::optim::Optimizer& optimizer,
    const ParameterNames& names,
    const StateDict& state);

}  // namespace tern::optim
