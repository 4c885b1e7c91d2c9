#include "tern/tests/parity/scaler_events.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tern/learner/optim/sgd.h"

namespace tern::test {

namespace {

float gradient(const std::string& kind) {
  if (kind == "nan") return NAN;
  if (kind == "inf") return INFINITY;
  return kind == "-inf" ? -INFINITY : 1;
}

void step_and_update(
    GradScaler& scaler,
    const nlohmann::json& kinds,
    MakeOptimizer make) {
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
  for (const std::string kind : kinds) {
    const auto param = torch::zeros(3).requires_grad_();
    param.mutable_grad() = torch::tensor({1.f, gradient(kind), 1.f});
    optimizers.push_back(make(param));
    scaler.step(*optimizers.back());
    const bool has_moved = (param != 0).any().item<bool>();
    EXPECT_EQ(has_moved, kind == "finite");
  }
  scaler.update();
}

void happen(
    GradScaler& scaler,
    const nlohmann::json& event,
    MakeOptimizer make) {
  const std::string& name = event.begin().key();
  const nlohmann::json& value = event.begin().value();
  if (name == "gradients") {
    step_and_update(scaler, value, make);
  } else if (name == "update") {
    scaler.update(value.get<double>());
  } else if (name == "growth_interval") {
    scaler.set_growth_interval(value);
  } else if (name == "growth_factor") {
    scaler.set_growth_factor(value);
  } else if (name == "backoff_factor") {
    scaler.set_backoff_factor(value);
  } else {
    ADD_FAILURE() << "unknown event " << name;
  }
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> ordinary_sgd(torch::Tensor param) {
  return std::make_unique<torch::optim::SGD>(
      Tensors{std::move(param)},
      torch::optim::SGDOptions(1));
}

std::unique_ptr<torch::optim::Optimizer> amp_aware_sgd(torch::Tensor param) {
  return std::make_unique<optim::SGD>(
      Tensors{std::move(param)},
      torch::optim::SGDOptions(1));
}

Trace play(
    GradScaler& scaler,
    const nlohmann::json& events,
    MakeOptimizer make) {
  Trace trace;
  scaler.scale(torch::ones({}));
  for (const auto& event : events) {
    happen(scaler, event, make);
    trace.emplace_back(scaler.get_scale(), scaler.growth_tracker());
  }
  return trace;
}

GradScaler make_scaler(const nlohmann::json& options) {
  GradScalerOptions all{.device = torch::kCPU};
  all.init_scale = options.value("init_scale", all.init_scale);
  all.growth_factor = options.value("growth_factor", all.growth_factor);
  all.backoff_factor = options.value("backoff_factor", all.backoff_factor);
  all.growth_interval = options.value("growth_interval", all.growth_interval);
  return GradScaler(all);
}

nlohmann::json to_json(const GradScalerState& state) {
  return {
      {"scale", state.scale},
      {"growth_factor", state.growth_factor},
      {"backoff_factor", state.backoff_factor},
      {"growth_interval", state.growth_interval},
      {"_growth_tracker", state.growth_tracker}};
}

GradScalerState to_state(const nlohmann::json& state_dict) {
  return {
      .scale = state_dict.at("scale"),
      .growth_factor = state_dict.at("growth_factor"),
      .backoff_factor = state_dict.at("backoff_factor"),
      .growth_interval = state_dict.at("growth_interval"),
      .growth_tracker = state_dict.at("_growth_tracker")};
}

}  // namespace tern::test
