// The fused optimizers against Python's torch.optim, with and without a scaler
// that overflows once.

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/learner/optim/torch_optim_fixture.h"
#include "tern/tests/support/tolerance.h"

namespace tern::torch_optim_test {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

struct Case {
  std::string name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)> make;
};

template <class Optimizer>
auto make(typename Optimizer::Options options) {
  return [options](Tensors params) {
    return std::make_unique<Optimizer>(std::move(params), options);
  };
}

class TorchOptim : public testing::TestWithParam<Case> {
 protected:
  torch::Tensor train(GradScaler* scaler) {
    auto w = torch::linspace(-1, 1, 8).requires_grad_();
    const auto optimizer = GetParam().make({w});
    for (int i = 0; i < 10; ++i) {
      optimizer->zero_grad();
      const auto loss = (w - torch::arange(8)).square().mean();
      if (!scaler) {
        loss.backward();
        optimizer->step();
        continue;
      }
      scaler->scale(loss).backward();
      if (i == 4) w.mutable_grad().index_put_({2}, NAN);
      EXPECT_EQ(scaler->step(*optimizer), StepResult::unknown);
      scaler->update();
      trace.emplace_back(scaler->get_scale(), scaler->growth_tracker());
    }
    return w.detach();
  }

  torch::Tensor expected(const std::string& suffix) {
    return torch::tensor(
        test::kTorchOptim.at(GetParam().name + suffix),
        torch::kDouble);
  }

  std::vector<std::pair<double, int64_t>> trace;
};

TEST_P(TorchOptim, MatchesPythonsParameters) {
  EXPECT_TRUE(test::all_close(train(nullptr), expected(""), {1e-6, 1e-6}));
}

TEST_P(TorchOptim, MatchesPythonsParametersAndScalesThroughAnOverflow) {
  GradScaler scaler(
      {.device = torch::kCPU, .init_scale = 8, .growth_interval = 3});
  EXPECT_TRUE(test::all_close(train(&scaler), expected("_amp"), {1e-6, 1e-6}));
  const std::vector<std::pair<double, int64_t>> of_python = {
      {8, 1},
      {8, 2},
      {16, 0},
      {16, 1},
      {8, 0},
      {8, 1},
      {8, 2},
      {16, 0},
      {16, 1},
      {16, 2}};
  EXPECT_EQ(trace, of_python);
}

INSTANTIATE_TEST_SUITE_P(
    Options,
    TorchOptim,
    testing::Values(
        Case{"sgd", make<optim::SGD>(SGDOptions(.1))},
        Case{"sgd_momentum", make<optim::SGD>(SGDOptions(.1).momentum(.9))},
        Case{
            "sgd_dampening",
            make<optim::SGD>(
                SGDOptions(.1).momentum(.9).dampening(.3).weight_decay(.1))},
        Case{
            "sgd_nesterov",
            make<optim::SGD>(
                SGDOptions(.1).momentum(.9).nesterov(true).weight_decay(.1))},
        Case{"adam", make<optim::Adam>(AdamOptions(.01))},
        Case{
            "adam_l2",
            make<optim::Adam>(
                AdamOptions(.01).betas({.8, .95}).eps(1e-6).weight_decay(.1))},
        Case{"adam_amsgrad", make<optim::Adam>(AdamOptions(.01).amsgrad(true))},
        Case{"adamw", make<optim::AdamW>(AdamWOptions(.01).weight_decay(.1))},
        Case{
            "adamw_amsgrad",
            make<optim::AdamW>(
                AdamWOptions(.01).weight_decay(.1).amsgrad(true))}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tern::torch_optim_test
