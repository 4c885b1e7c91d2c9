#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "tern/learner/amp/master_weights.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/support/tolerance.h"

namespace tern::rebind_test {
namespace {

void step(torch::optim::Optimizer& optimizer, const torch::Tensor& param) {
  param.mutable_grad() = torch::full_like(param, .5f) + param.detach();
  optimizer.step();
}

template <class Optimizer>
void expect_moments_move() {
  const auto kept = torch::ones({3}).requires_grad_();
  const auto old = torch::ones({3}).requires_grad_();
  Optimizer reference({kept});
  Optimizer optimizer({old});
  step(reference, kept);
  step(optimizer, old);

  const auto renewed = old.detach().clone().requires_grad_();
  rebind_parameters(optimizer, {old}, {renewed});
  EXPECT_TRUE(optimizer.param_groups()[0].params()[0].is_same(renewed));
  EXPECT_EQ(optimizer.state().count(old.unsafeGetTensorImpl()), 0);
  step(reference, kept);
  step(optimizer, renewed);
  EXPECT_TRUE(test::bit_equal(renewed, kept));
}

TEST(RebindParameters, KeepsTheMoments) {
  expect_moments_move<optim::Adam>();
  expect_moments_move<torch::optim::Adam>();
}

TEST(RebindParameters, CanSwapTwoParameters) {
  const auto a = torch::ones({1}).requires_grad_();
  const auto b = torch::ones({1}).requires_grad_();
  optim::Adam optimizer({a, b});
  step(optimizer, a);
  const auto* state_of_a = optimizer.state().at(a.unsafeGetTensorImpl()).get();
  rebind_parameters(optimizer, {a, b}, {b, a});
  EXPECT_EQ(optimizer.state().at(b.unsafeGetTensorImpl()).get(), state_of_a);
  EXPECT_TRUE(optimizer.param_groups()[0].params()[0].is_same(b));
}

}  // namespace
}  // namespace tern::rebind_test
