#include "tern/learner/inference/nonfinite_values.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>

#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"

namespace tern::nonfinite_values_test {
namespace {

using torch::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

/// True if the outputs of a function of [2, 4, 6, 6] may be NaN or infinite.
bool may_be_nonfinite(
    const Function& function,
    const std::vector<size_t>& inputs = {}) {
  const torch::NoGradGuard no_grad;
  Model model = torch::nn::Sequential(torch::nn::Functional(function));
  model.eval();
  const auto module = trace(model, {torch::rand({2, 4, 6, 6}) + 1});
  const auto graph =
      constant_graph(module, *module.get_method("forward").graph(), "test");
  return possibly_nonfinite_values(*graph, inputs)
      .contains(graph->outputs()[0]);
}

struct Case {
  std::string name;
  Function function;
};

TEST(NonfiniteValues, OfOperatorsThatCreateThem) {
  const Tensor one = torch::ones({4}), minus = torch::full({4}, -1.0);
  const Tensor mask = torch::ones({6, 6}, torch::kBool);
  for (const Case& c : std::vector<Case>{
           {"division", [](const Tensor& x) { return x / x.sum(); }},
           {"division by a small number",
            [](const Tensor& x) { return x / 1e-46; }},
           {"product with a large number",
            [](const Tensor& x) { return x * 1e300; }},
           {"log", [](const Tensor& x) { return x.log(); }},
           {"sqrt", [](const Tensor& x) { return x.sqrt(); }},
           {"root", [](const Tensor& x) { return x.pow(0.5); }},
           {"reciprocal", [](const Tensor& x) { return x.pow(-1); }},
           {"std",
            [](const Tensor& x) {
              return x.std({2, 3});
            }},
           {"mean of nothing",
            [](const Tensor& x) { return x.narrow(1, 0, 0).mean(1); }},
           {"max pooling of padding",
            [](const Tensor& x) {
              return torch::max_pool2d(x, 2, 1, 1, /*dilation=*/7);
            }},
           {"LayerNorm without eps",
            [](const Tensor& x) {
              return torch::layer_norm(x, {6}, {}, {}, 0);
            }},
           {"LayerNorm with an eps that is 0 in fp32",
            [](const Tensor& x) {
              return torch::layer_norm(x, {6}, {}, {}, 1e-46);
            }},
           {"InstanceNorm without eps",
            [](const Tensor& x) {
              return torch::instance_norm(
                  x,
                  {},
                  {},
                  {},
                  {},
                  true,
                  0.1,
                  0,
                  false);
            }},
           {"attention with a mask of booleans",
            [&](const Tensor& x) {
              return torch::scaled_dot_product_attention(x, x, x, mask);
            }},
           {"pooling of nothing",
            [](const Tensor& x) {
              return torch::adaptive_avg_pool2d(x.narrow(3, 0, 0), {1, 1});
            }},
           {"GroupNorm without eps",
            [](const Tensor& x) { return torch::group_norm(x, 2, {}, {}, 0); }},
           {"BatchNorm with a negative variance",
            [&](const Tensor& x) {
              return torch::batch_norm(
                  x,
                  one,
                  one,
                  one,
                  minus,
                  false,
                  0.1,
                  1e-5,
                  false);
            }},
           {"an infinite constant",
            [](const Tensor& x) {
              return x.masked_fill(
                  x > 2,
                  -std::numeric_limits<double>::infinity());
            }},
           {"a view that was written",
            [](const Tensor& x) {
              const Tensor y = x * 2;
              y.select(1, 0).div_(x.sum());
              return y.relu();
            }},
           {"a copy into a view",
            [](const Tensor& x) {
              const Tensor y = x * 2;
              y.select(1, 0).copy_(x.select(1, 1).log());
              return y.relu();
            }},
           {"an unknown operator",
            [](const Tensor& x) { return torch::special_erfcx(x); }}}) {
    EXPECT_TRUE(may_be_nonfinite(c.function)) << c.name;
  }
}

TEST(NonfiniteValues, AreNotCreatedByUsualOperators) {
  const Tensor one = torch::ones({4}), numbers = torch::zeros({6, 6});
  for (const Case& c : std::vector<Case>{
           {"division by a constant",
            [&](const Tensor& x) {
              return x / 2 + x / one.view({4, 1, 1});
            }},
           {"square", [](const Tensor& x) { return x.pow(2); }},
           {"mean",
            [](const Tensor& x) {
              return x.mean({2, 3});
            }},
           {"max pooling",
            [](const Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); }},
           {"LayerNorm",
            [](const Tensor& x) { return torch::layer_norm(x, {6}); }},
           {"BatchNorm",
            [&](const Tensor& x) {
              return torch::batch_norm(
                  x,
                  one,
                  one,
                  one,
                  one,
                  false,
                  0.1,
                  1e-5,
                  false);
            }},
           {"BatchNorm with the batch's statistics",
            [](const Tensor& x) {
              return torch::batch_norm(
                  x,
                  {},
                  {},
                  {},
                  {},
                  true,
                  0.1,
                  1e-5,
                  false);
            }},
           {"attention",
            [](const Tensor& x) {
              return torch::scaled_dot_product_attention(x, x, x);
            }},
           {"attention with a mask of numbers",
            [&](const Tensor& x) {
              return torch::scaled_dot_product_attention(x, x, x, numbers);
            }},
           {"InstanceNorm",
            [](const Tensor& x) {
              return torch::instance_norm(
                  x,
                  {},
                  {},
                  {},
                  {},
                  true,
                  0.1,
                  1e-5,
                  false);
            }},
           {"a write into a view",
            [](const Tensor& x) {
              const Tensor y = x * 2;
              y.select(1, 0).copy_(x.select(1, 1)).relu_();
              return y.relu();
            }},
           {"log of another branch", [](const Tensor& x) {
              const Tensor unused = x.log();
              return x.relu();
            }}}) {
    EXPECT_FALSE(may_be_nonfinite(c.function)) << c.name;
  }
}

TEST(NonfiniteValues, IncludeTheGivenInputs) {
  const Function relu = [](const Tensor& x) { return x.relu(); };
  EXPECT_TRUE(may_be_nonfinite(relu, {0}));
  EXPECT_FALSE(may_be_nonfinite(relu));
}

}  // namespace
}  // namespace tern::nonfinite_values_test
