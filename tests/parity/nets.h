#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/amp/autocast.h"

namespace tern::test {

/// The net of oracle/nets.py with these weights, which are concatenated.
torch::nn::Sequential new_net(const torch::Tensor& weights);

/// Initial weights and batches as stored in a fixture.
struct World {
  explicit World(const nlohmann::json& fixture);

  std::vector<torch::nn::Sequential> new_nets() const;
  int64_t batches() const { return images.size(0); }

  std::vector<torch::Tensor> weights;
  torch::Tensor images, labels;  // [batch, N, 1, 4, 4], [batch, N]
};

torch::Tensor loss_of(
    torch::nn::Sequential& net,
    const torch::Tensor& image,
    const torch::Tensor& label);

/// Autocast to "bfloat16" or "float16"; off for "float32".
struct Precision {
  explicit Precision(const std::string& name);

  std::optional<AutocastGuard> guard;
};

enum class Library { libtorch, tern };

/// sgd, sgd_l2, adam or adamw with the options of oracle/nets.py.
std::unique_ptr<torch::optim::Optimizer> new_optimizer(
    const std::string& name,
    Library library,
    std::vector<torch::Tensor> params);

/// Expects Python's losses, traces, parameters and running statistics of a run;
/// bit for bit if `rounds_alike()`.
void expect_the_run_of_python(
    const std::vector<torch::nn::Sequential>& nets,
    const std::vector<torch::Tensor>& losses,
    const std::vector<std::pair<double, int64_t>>& trace,
    const nlohmann::json& of_python);

/// All parameters, concatenated.
torch::Tensor parameters_of(const torch::nn::Sequential& net);

}  // namespace tern::test
