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

/// torch::optim::SGD, whose steps the scaler makes or leaves out.
std::unique_ptr<torch::optim::Optimizer> ordinary_sgd(torch::Tensor param);
/// tern::optim::SGD, which decides by itself.
std::unique_ptr<torch::optim::Optimizer> amp_aware_sgd(torch::Tensor param);

/// Lets happen what oracle/scaler_events.py describes. Every optimizer has one
/// parameter, of zeros; one that has seen nothing but finite gradients moves
/// it, the others must not.
Trace play(
    GradScaler& scaler,
    const nlohmann::json& events,
    MakeOptimizer make);

/// A CPU scaler with Python's names for its options.
GradScaler make_scaler(const nlohmann::json& options);

/// Python's `state_dict()`.
nlohmann::json to_json(const GradScalerState& state);
GradScalerState to_state(const nlohmann::json& state_dict);

}  // namespace tern::test
