#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/amp/grad_scaler.h"

namespace tern::test {

/// (scale, growth tracker) after each event.
using Trace = std::vector<std::pair<double, int64_t>>;
using MakeOptimizer =
    std::unique_ptr<torch::optim::Optimizer> (*)(torch::Tensor param);

/// torch::optim::SGD; the scaler runs or skips its steps.
std::unique_ptr<torch::optim::Optimizer> ordinary_sgd(torch::Tensor param);
/// tern::optim::SGD, which skips steps itself.
std::unique_ptr<torch::optim::Optimizer> amp_aware_sgd(torch::Tensor param);

/// Plays the events described in oracle/scaler_events.py. Every optimizer has
/// one parameter of zeros. It must change if all its gradients are finite, and
/// must not otherwise.
Trace play(
    GradScaler& scaler,
    const nlohmann::json& events,
    MakeOptimizer make);

/// A CPU scaler; the options have Python's names.
GradScaler make_scaler(const nlohmann::json& options);

/// Python's `state_dict()`.
nlohmann::json to_json(const GradScalerState& state);
GradScalerState to_state(const nlohmann::json& state_dict);

}  // namespace tern::test
