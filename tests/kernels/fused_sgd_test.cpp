#include <limits>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/kernels/reference.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::fused_sgd_test {
namespace {

const FusedSgdArgs kMomentum{.lr = 0.1, .momentum = 0.9};

std::vector<torch::Tensor> buffers(
    const StepLists& lists,
    const FusedSgdArgs& args) {
  return args.momentum != 0 ? lists.momentum_buffers
                            : std::vector<torch::Tensor>{};
}

void sgd(
    const StepLists& lists,
    const FusedSgdArgs& args,
    const GradState& state = {}) {
  fused_sgd_(lists.tensors(), buffers(lists, args), args, state);
}

void reference_sgd(
    const StepLists& lists,
    const FusedSgdArgs& args,
    const GradState& state = {}) {
  reference::fused_sgd_(lists.tensors(), buffers(lists, args), args, state);
}

const std::vector<std::vector<int64_t>> kShapes = {{7}, {64, 33}, {3, 5, 3, 3}};

struct Case {
  const char* name;
  FusedSgdArgs args;
  StepListOptions lists;
  double grad_scale = 1;
};

class FusedSgdTest : public testing::TestWithParam<Case> {};

TEST_P(FusedSgdTest, EqualsReferenceBitForBit) {
  auto actual = make_step_lists(small_shapes(), GetParam().lists);
  auto expected = actual.clone();
  GradState state;
  if (GetParam().grad_scale != 1) {
    state.grad_scale = torch::tensor(GetParam().grad_scale, torch::kFloat);
    state.found_inf = torch::zeros({});
  }
  for (int step = 0; step < 3; ++step) {
    sgd(actual, GetParam().args, state);
    reference_sgd(expected, GetParam().args, state);
  }
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

INSTANTIATE_TEST_SUITE_P(
    AllForms,
    FusedSgdTest,
    testing::Values(
        Case{"plain", {.lr = 0.1}, {}},
        Case{"plain_l2", {.lr = 0.1, .weight_decay = 0.1}, {}},
        Case{
            "plain_decoupled_half",
            {.lr = 0.1, .weight_decay = 0.1, .decoupled_weight_decay = true},
            {.grad_type = torch::kHalf, .weight_type = torch::kHalf},
            1024},
        Case{"momentum", {.lr = 0.1, .momentum = 0.9}, {}},
        Case{
            "momentum_first_step",
            {.lr = 0.1, .momentum = 0.9, .dampening = 0.5},
            {.steps_done = 0},
            3},
        Case{
            "dampening_l2_bfloat16",
            {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
            {.grad_type = torch::kBFloat16, .weight_type = torch::kBFloat16},
            8},
        Case{
            "nesterov_decoupled_half",
            {.lr = 0.1,
             .momentum = 0.9,
             .weight_decay = 0.1,
             .nesterov = true,
             .decoupled_weight_decay = true},
            {.grad_type = torch::kHalf, .weight_type = torch::kBFloat16},
            3},
        Case{
            "nesterov_first_step_l2",
            {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
            {.grad_type = torch::kBFloat16,
             .weight_type = torch::kHalf,
             .steps_done = 0}}),
    [](const auto& info) { return info.param.name; });

struct LibTorchCase {
  const char* name;
  FusedSgdArgs args;
};

class FusedSgdLibTorchTest : public testing::TestWithParam<LibTorchCase> {};

TEST_P(FusedSgdLibTorchTest, TenStepsEqualTorchOptimSgd) {
  const FusedSgdArgs& args = GetParam().args;
  auto lists = make_step_lists(kShapes, {.steps_done = 0});
  std::vector<torch::Tensor> theirs;
  for (const auto& param : lists.params) {
    theirs.push_back(param.clone().requires_grad_());
  }
  torch::optim::SGD optimizer(
      theirs,
      torch::optim::SGDOptions(args.lr)
          .momentum(args.momentum)
          .dampening(args.dampening)
          .weight_decay(args.weight_decay)
          .nesterov(args.nesterov));
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < theirs.size(); ++i) {
      lists.grads[i] = torch::randn_like(lists.params[i]);
      theirs[i].mutable_grad() = lists.grads[i];
    }
    optimizer.step();
    sgd(lists, args);
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    EXPECT_TRUE(all_close(lists.params[i], theirs[i]));
  }
}

TEST_P(FusedSgdLibTorchTest, EqualsFusedSgdOfATen) {
  const FusedSgdArgs& args = GetParam().args;
  auto lists = make_step_lists(kShapes);
  auto theirs = lists.clone();
  const auto scale = torch::tensor(128.0f), found_inf = torch::zeros({});
  at::_fused_sgd_(
      theirs.params,
      theirs.grads,
      buffers(theirs, args),
      args.weight_decay,
      args.momentum,
      args.lr,
      args.dampening,
      args.nesterov,
      /*maximize=*/false,
      /*is_first_step=*/false,
      scale,
      found_inf);
  sgd(lists, args, {scale, found_inf});
  for (size_t i = 0; i < theirs.params.size(); ++i) {
    EXPECT_TRUE(all_close(lists.params[i], theirs.params[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options,
    FusedSgdLibTorchTest,
    testing::Values(
        LibTorchCase{"plain", {.lr = 0.1, .weight_decay = 0.01}},
        LibTorchCase{
            "momentum",
            {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}},
        LibTorchCase{
            "dampening",
            {.lr = 0.1, .momentum = 0.9, .dampening = 0.3}},
        LibTorchCase{
            "nesterov",
            {.lr = 0.1, .momentum = 0.9, .nesterov = true}}),
    [](const auto& info) { return info.param.name; });

class FusedSgdSkipTest : public testing::TestWithParam<float> {};

TEST_P(FusedSgdSkipTest, LeavesEverythingBitForBit) {
  auto lists = make_step_lists(
      small_shapes(),
      {.grad_type = torch::kHalf, .weight_type = torch::kHalf});
  auto before = lists.clone();
  sgd(lists, kMomentum, {torch::tensor(4.0f), torch::tensor(GetParam())});
  EXPECT_TRUE(lists_bit_equal(lists, before));
}

// 2 is the sum over two devices. PyTorch's kernels read it as "no overflow".
INSTANTIATE_TEST_SUITE_P(
    FoundInf,
    FusedSgdSkipTest,
    testing::Values(1.f, 2.f, 0.5f, std::numeric_limits<float>::quiet_NaN()));

// With a scale of 65536 the first step usually overflows. PyTorch's fused SGD
// then reads its uninitialized buffer in the second step.
TEST(FusedSgd, FirstStepAfterSkippedFirstStepIgnoresTheBuffer) {
  auto lists = make_step_lists(kShapes, {.steps_done = 0});
  for (auto& buffer : lists.momentum_buffers) {
    buffer.fill_(std::numeric_limits<float>::quiet_NaN());
  }
  auto args = kMomentum;
  args.dampening = 0.5;
  const auto before = lists.clone();
  sgd(lists, args, {torch::tensor(1.0f), torch::tensor(1.0f)});
  sgd(lists, args, {torch::tensor(1.0f), torch::tensor(0.0f)});
  for (size_t i = 0; i < lists.params.size(); ++i) {
    EXPECT_TRUE(bit_equal(lists.momentum_buffers[i], lists.grads[i]));
    EXPECT_TRUE(
        all_close(lists.params[i], before.params[i] - 0.1 * lists.grads[i]));
    EXPECT_EQ(lists.steps[i].item<float>(), 1);
  }
}

TEST(FusedSgd, ReadsHyperparametersFromMemory) {
  for (const double momentum : {0.0, 0.9}) {
    const FusedSgdArgs old = {.lr = 0.5, .momentum = momentum};
    FusedSgdArgs now = {
        .lr = 0.01,
        .momentum = momentum / 2,
        .weight_decay = 0.1};
    auto expected = make_step_lists({{7}, {2, 3}});
    auto actual = expected.clone();
    const auto step =
        [&](StepLists& l, const FusedSgdArgs& args, const torch::Tensor& at) {
          const at::TensorList none, buffers = l.momentum_buffers;
          fused_sgd_(l.tensors(), momentum ? buffers : none, args, {}, at);
        };
    step(expected, now, {});
    // Without buffers there is no momentum, whatever value is in memory.
    if (momentum == 0) now.momentum = 0.9;
    step(actual, old, to_tensor(now, torch::kCPU));
    EXPECT_TRUE(lists_bit_equal(actual, expected));
  }
}

TEST(FusedSgd, PowerOfTwoGradScaleChangesNoBit) {
  auto plain = make_step_lists(small_shapes(), {.weight_type = torch::kHalf});
  auto scaled = plain.clone();
  for (auto& grad : scaled.grads) {
    grad.mul_(65536);
  }
  sgd(plain, kMomentum);
  sgd(scaled, kMomentum, {torch::tensor(65536.0f), torch::zeros({})});
  scaled.grads = plain.grads;
  EXPECT_TRUE(lists_bit_equal(scaled, plain));
}

TEST(FusedSgd, TinyUpdatesReachTheHalfWeightThroughItsMasterWeight) {
  StepLists lists;
  lists.params = {torch::ones({1})};
  lists.grads = {torch::full({1}, 1e-4, torch::kHalf)};
  lists.weights = {torch::ones({1}, torch::kHalf)};
  lists.steps = {torch::zeros({})};
  for (int step = 0; step < 10; ++step) {
    sgd(lists, {.lr = 1});
  }
  EXPECT_NEAR(lists.params[0].item<float>(), 0.999f, 1e-6);
  EXPECT_TRUE(bit_equal(lists.weights[0], lists.params[0].to(torch::kHalf)));
  EXPECT_LT(lists.weights[0].item<float>(), 1);
}

}  // namespace
}  // namespace tern::test::fused_sgd_test
