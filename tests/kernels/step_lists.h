#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test {

/// The tensors of an optimizer step, owned.
struct StepLists {
  std::vector<torch::Tensor> params, grads, weights, steps;
  std::vector<torch::Tensor> momentum_buffers;
  std::vector<torch::Tensor> exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
  std::vector<torch::Tensor> slow_weights;
  std::vector<uint32_t> rounding_keys;

  OptimizerTensors tensors() const {
    return {params, grads, weights, steps, slow_weights, rounding_keys};
  }

  std::vector<std::vector<torch::Tensor>*> lists() {
    return {
        &params,
        &grads,
        &weights,
        &steps,
        &momentum_buffers,
        &exp_avgs,
        &exp_avg_sqs,
        &max_exp_avg_sqs,
        &slow_weights};
  }

  StepLists map(
      const std::function<torch::Tensor(const torch::Tensor&)>& f) const {
    StepLists out = *this;
    for (auto* list : out.lists()) {
      for (torch::Tensor& tensor : *list) {
        tensor = tensor.defined() ? f(tensor) : tensor;
      }
    }
    return out;
  }

  StepLists clone() const {
    return map(
        [](const torch::Tensor& t) { return t.is_sparse() ? t : t.clone(); });
  }

  StepLists to(torch::Device device) const {
    return map([&](const torch::Tensor& t) { return t.to(device); });
  }
};

struct StepListOptions {
  torch::ScalarType grad_type = torch::kFloat;
  /// kFloat: no weights.
  torch::ScalarType weight_type = torch::kFloat;
  float steps_done = 3;
  /// Creates slow weights, for Lookahead.
  bool looks_ahead = false;
  /// Creates 8-bit moments, all zero.
  bool has_8bit_moments = false;
  /// kBFloat16: without master weights.
  torch::ScalarType param_type = torch::kFloat;
};

/// All tensors of all lists.
inline testing::AssertionResult lists_bit_equal(
    StepLists& actual,
    StepLists& expected) {
  const auto a = actual.lists(), e = expected.lists();
  for (size_t list = 0; list < a.size(); ++list) {
    for (size_t i = 0; i < a[list]->size(); ++i) {
      const torch::Tensor& tensor = (*a[list])[i];
      if (!tensor.defined() || tensor.is_sparse() || tensor.is_meta()) {
        continue;
      }
      const auto result = bit_equal((*a[list])[i], (*e[list])[i]);
      if (!result) {
        return testing::AssertionFailure() << "list " << list << ", tensor "
                                           << i << ": " << result.message();
      }
    }
  }
  return testing::AssertionSuccess();
}

/// Random values as in the middle of a training run; one parameter per shape.
inline StepLists make_step_lists(
    const std::vector<std::vector<int64_t>>& shapes,
    const StepListOptions& options = {}) {
  torch::manual_seed(7);
  StepLists lists;
  for (const auto& shape : shapes) {
    lists.params.push_back(torch::randn(shape).to(options.param_type));
    if (options.param_type == torch::kBFloat16) {
      const size_t key = lists.rounding_keys.size();
      lists.rounding_keys.push_back(static_cast<uint32_t>(key));
    }
    lists.grads.push_back(torch::randn(shape).to(options.grad_type));
    if (options.weight_type != torch::kFloat) {
      lists.weights.push_back(torch::zeros(shape, options.weight_type));
    }
    lists.steps.push_back(torch::tensor(options.steps_done));
    lists.momentum_buffers.push_back(torch::randn(shape));
    lists.exp_avgs.push_back(torch::randn(shape) * 0.1);
    lists.exp_avg_sqs.push_back(torch::rand(shape) * 0.1);
    lists.max_exp_avg_sqs.push_back(torch::rand(shape) * 0.1);
    if (options.has_8bit_moments) {
      const int64_t size = moment_8bit_size(lists.params.back());
      for (auto* list :
           {&lists.momentum_buffers,
            &lists.exp_avgs,
            &lists.exp_avg_sqs,
            &lists.max_exp_avg_sqs}) {
        list->back() = torch::zeros({size}, torch::kByte);
      }
    }
    if (options.looks_ahead) lists.slow_weights.push_back(torch::randn(shape));
  }
  return lists;
}

/// Sizes around the ends of vectors and blocks.
inline std::vector<std::vector<int64_t>> small_shapes() {
  return {{1}, {3}, {4}, {0}, {2, 3}, {17, 5}, {1023}, {1025}, {2049}};
}

/// Also sizes around the ends of threads and chunks.
inline std::vector<std::vector<int64_t>> large_shapes() {
  auto shapes = small_shapes();
  shapes.insert(shapes.end(), {{65535}, {65536}, {65537}, {300, 41}});
  return shapes;
}

/// Plain SGD, with momentum, and with Nesterov momentum.
inline std::vector<FusedSgdArgs> sgd_variants() {
  return {
      {.lr = 0.1, .weight_decay = 0.1},
      {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
      {.lr = 0.1,
       .momentum = 0.9,
       .weight_decay = 0.1,
       .nesterov = true,
       .decoupled_weight_decay = true}};
}

}  // namespace tern::test
