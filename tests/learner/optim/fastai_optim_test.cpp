// Tern's versions of fastai's optimizers against fastai, in fp32 and in mixed
// precision.

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/learner/optim/fastai_optim_fixture.h"
#include "tern/tests/support/tolerance.h"

namespace tern::fastai_optim_test {
namespace {

using optim::FusedOptimizer;
using test::bit_equal;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

struct Case {
  std::string name;
  OptimizerFactory make;
  double lr = 0.01, weight_decay = 0;
  bool decouple_wd = true;
};

Tensors start() {
  return {
      torch::linspace(-1, 1, 8),
      torch::arange(12.f).sin().view({3, 4}),
      torch::zeros({5})};
}

/// The gradients of the mean squared errors.
Tensors gradients(const Tensors& params) {
  const Tensors targets = {
      torch::arange(8.f),
      torch::arange(12.f).cos().view({3, 4}),
      torch::full({5}, 0.3f)};
  Tensors grads;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto share = 2.0 / static_cast<double>(params[i].numel());
    grads.push_back((params[i] - targets[i]) * share);
  }
  return grads;
}

class FastaiOptim : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<torch::optim::Optimizer> make(const Tensors& params) {
    const Case& c = GetParam();
    auto optimizer = c.make({OptimizerParamGroup(params)});
    dynamic_cast<optim::DecoupledWeightDecay&>(*optimizer)
        .decoupled_weight_decay(c.decouple_wd);
    for (auto& group : optimizer->param_groups()) {
      group.options().set_lr(c.lr);
      optim::set_weight_decay(group.options(), c.weight_decay);
    }
    return optimizer;
  }

  static void
  train(torch::optim::Optimizer& optimizer, const Tensors& params, int steps) {
    for (int step = 0; step < steps; ++step) {
      const Tensors grads = gradients(params);
      for (size_t i = 0; i < params.size(); ++i) {
        torch::Tensor(params[i]).mutable_grad() = grads[i];
      }
      optimizer.step();
    }
  }
};

TEST_P(FastaiOptim, MatchesFastaisParametersAfter300Steps) {
  const Tensors params = start();
  train(*make(params), params, 300);
  Tensors flat;
  for (const torch::Tensor& p : params) flat.push_back(p.flatten());
  const auto expected =
      torch::tensor(test::kFastaiOptim.at(GetParam().name), torch::kDouble);
  EXPECT_TRUE(test::all_close(torch::cat(flat), expected, {1e-6, 1e-6}));
}

TEST_P(FastaiOptim, ResumesBitIdenticalFromNamedState) {
  const Tensors whole = start();
  const auto first = make(whole);
  train(*first, whole, 15);
  Tensors resumed;
  for (const torch::Tensor& p : whole) resumed.push_back(p.clone());
  const auto second = make(resumed);
  optim::load_named_state(
      *second,
      optim::numbered_names(*second),
      optim::named_state(*first, optim::numbered_names(*first)));
  train(*first, whole, 15);
  train(*second, resumed, 15);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(bit_equal(resumed[i], whole[i]));
  }
}

// Bit-identical to steps with equal fp32 gradients and without the steps that
// overflowed.
TEST_P(FastaiOptim, StepsFromScaledHalfGradientsAndSkipsOverflows) {
  const Tensors params = start(), masters = start();
  Tensors weights;
  for (const torch::Tensor& master : masters) {
    weights.push_back(master.to(torch::kHalf));
  }
  const auto plain = make(params), mixed = make(masters);
  auto& aware = dynamic_cast<AmpAware&>(*mixed);
  aware.set_weights(masters, weights);
  for (int step = 0; step < 20; ++step) {
    const Tensors grads = gradients(params);
    const bool overflows = step % 5 == 0;
    for (size_t i = 0; i < params.size(); ++i) {
      const auto scaled = (grads[i] * 1024).to(torch::kHalf);
      weights[i].mutable_grad() =
          overflows ? torch::full_like(scaled, INFINITY) : scaled;
      torch::Tensor(params[i]).mutable_grad() = scaled.to(torch::kFloat) / 1024;
    }
    aware.step_amp(torch::tensor(1024.f), torch::tensor(overflows ? 1.f : 0.f));
    if (!overflows) plain->step();
  }
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(bit_equal(masters[i], params[i]));
    EXPECT_TRUE(bit_equal(weights[i], params[i].to(torch::kHalf)));
  }
}

optim::FusedOptions lookahead(int64_t k, double alpha) {
  return {.lookahead = {.k = k, .alpha = alpha}};
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers,
    FastaiOptim,
    testing::Values(
        Case{"radam", optimizer<optim::RAdam>()},
        Case{"radam_l2", optimizer<optim::RAdam>(), 0.01, 0.1, false},
        Case{"ranger", ranger(), 0.01, 0.1},
        Case{"lamb", optimizer<optim::Lamb>()},
        Case{"lamb_decay", optimizer<optim::Lamb>(), 0.01, 0.1},
        Case{"larc", optimizer<optim::Larc>(), 0.1},
        Case{"larc_decay", optimizer<optim::Larc>(), 0.1, 0.1},
        Case{"lars", optimizer<optim::Larc>(optim::LarcOptions().clip(false))},
        Case{
            "lars_l2",
            optimizer<optim::Larc>(
                optim::LarcOptions().clip(false).momentum(0)),
            0.1,
            0.1,
            false},
        Case{
            "lookahead_adam",
            optimizer<optim::AdamW>(
                AdamWOptions().betas({0.9, 0.99}).eps(1e-5),
                lookahead(6, 0.5)),
            0.01,
            0.1},
        Case{
            "lookahead_sgd",
            optimizer<optim::SGD>(
                SGDOptions(0.01).momentum(0.9),
                lookahead(5, 0.8))}),
    [](const auto& info) { return info.param.name; });

TEST(Ranger, HasFastaisDefaults) {
  const auto made = ranger()({OptimizerParamGroup(start())});
  const auto& options =
      static_cast<const AdamWOptions&>(made->param_groups()[0].options());
  EXPECT_EQ(options.betas(), std::make_tuple(0.95, 0.99));
  EXPECT_EQ(options.eps(), 1e-6);
}

}  // namespace
}  // namespace tern::fastai_optim_test
