#pragma once

#include <string>
#include <unordered_map>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern::optim {

/// An optimizer's parameters by their names in the model.
using ParameterNames = std::unordered_map<c10::TensorImpl*, std::string>;

/// Names for those who need any: "0", "1", ... in the optimizer's order.
ParameterNames numbered_names(const torch::optim::Optimizer& optimizer);

/// "tern::optim::AdamW".
std::string class_name(const torch::optim::Optimizer& optimizer);

/// Everything that the optimizer remembers, as tensors: of each parameter
/// "layer1.weight/exp_avg" and the like by PyTorch's names, of each group
/// "0/lr", "0/momentum" and "0/weight_decay", which schedules move. Tensors
/// share memory with the optimizer; numbers are 0-dim kLong and kDouble.
///
/// Knows the fused optimizers and torch::optim's SGD, Adam, AdamW, RMSprop and
/// Adagrad.
/// \throws c10::NotImplementedError for the state of another one,
///         c10::ValueError for a parameter without a name.
StateDict named_state(
    torch::optim::Optimizer& optimizer,
    const ParameterNames& names);

/// Puts back what `named_state` gave, as copies on the parameters' devices.
/// \throws c10::ValueError if parameters, shapes, groups or the kind of
///         optimizer differ; the optimizer then is as it was.
void load_named_state(
    torch::optim::Optimizer& optimizer,
    const ParameterNames& names,
    const StateDict& state);

}  // namespace tern::optim
