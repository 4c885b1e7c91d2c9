#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/support/memory.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/kernels/reference.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::fused_optimizer_cuda_test {
namespace {

class FusedOptimizerCudaTest : public GpuTest {};

std::vector<torch::Tensor> none() {
  return {};
}

/// One Adam step; on the CPU by the reference.
void adam(StepLists& lists, const FusedAdamArgs& args, const GradState& state) {
  const auto max_exp_avg_sqs = args.amsgrad ? lists.max_exp_avg_sqs : none();
  const auto step = [&](const auto& function) {
    function(
        lists.tensors(),
        lists.exp_avgs,
        lists.exp_avg_sqs,
        max_exp_avg_sqs,
        args,
        state);
  };
  if (lists.params[0].is_cpu()) {
    step(reference::fused_adam_);
  } else {
    step([](const auto&... a) { tern::fused_adam_(a...); });
  }
}

void sgd(StepLists& lists, const FusedSgdArgs& args, const GradState& state) {
  const auto buffers = args.momentum != 0 ? lists.momentum_buffers : none();
  if (lists.params[0].is_cpu()) {
    reference::fused_sgd_(lists.tensors(), buffers, args, state);
  } else {
    tern::fused_sgd_(lists.tensors(), buffers, args, state);
  }
}

GradState grad_state(float scale, float found_inf, torch::Device device) {
  return {torch::tensor(scale, device), torch::full({}, found_inf, device)};
}

void expect_close(StepLists& actual, StepLists& expected) {
  const auto a = actual.lists(), e = expected.lists();
  for (size_t list = 0; list < a.size(); ++list) {
    for (size_t i = 0; i < a[list]->size(); ++i) {
      if ((*a[list])[i].defined()) {
        EXPECT_TRUE(all_close((*a[list])[i], (*e[list])[i]))
            << "list " << list << ", tensor " << i;
      }
    }
  }
}

TEST_F(FusedOptimizerCudaTest, AdamEqualsReference) {
  for (const auto grad : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    for (const auto weight : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
      for (const bool flag : {false, true}) {
        auto cpu = make_step_lists(
            large_shapes(),
            {.grad_type = grad, .weight_type = weight});
        auto cuda = cpu.to(torch::kCUDA);
        const FusedAdamArgs args{
            .lr = 0.01,
            .weight_decay = 0.1,
            .amsgrad = flag,
            .decoupled_weight_decay = flag};
        for (int step = 0; step < 3; ++step) {
          adam(cpu, args, grad_state(1024, 0, torch::kCPU));
          adam(cuda, args, grad_state(1024, 0, torch::kCUDA));
        }
        expect_close(cuda, cpu);
      }
    }
  }
}

TEST_F(FusedOptimizerCudaTest, SgdEqualsReference) {
  for (const FusedSgdArgs& args : sgd_variants()) {
    for (const float steps_done : {0.0f, 3.0f}) {
      auto cpu = make_step_lists(
          large_shapes(),
          {.grad_type = torch::kHalf,
           .weight_type = torch::kHalf,
           .steps_done = steps_done});
      auto cuda = cpu.to(torch::kCUDA);
      for (int step = 0; step < 3; ++step) {
        sgd(cpu, args, grad_state(3, 0, torch::kCPU));
        sgd(cuda, args, grad_state(3, 0, torch::kCUDA));
      }
      expect_close(cuda, cpu);
    }
  }
}

// Longer than the table of one launch.
TEST_F(FusedOptimizerCudaTest, ListsLongerThanOneLaunch) {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t i = 0; i < 3000; ++i) {
    shapes.push_back({i % 7 == 0 ? 0 : 1 + i % 50});
  }
  auto cpu = make_step_lists(shapes);
  auto cuda = cpu.to(torch::kCUDA);
  adam(cpu, {}, {});
  adam(cuda, {}, {});
  sgd(cpu, {.lr = 0.1, .momentum = 0.9}, {});
  sgd(cuda, {.lr = 0.1, .momentum = 0.9}, {});
  expect_close(cuda, cpu);
}

TEST_F(FusedOptimizerCudaTest, AnyFoundInfSkipsBitForBit) {
  for (const float found :
       {1.0f, 2.0f, 0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    auto lists = make_step_lists(
                     large_shapes(),
                     {.grad_type = torch::kHalf, .weight_type = torch::kHalf})
                     .to(torch::kCUDA);
    auto before = lists.clone();
    adam(lists, {.weight_decay = 0.1}, grad_state(4, found, torch::kCUDA));
    sgd(lists, {.momentum = 0.9}, grad_state(4, found, torch::kCUDA));
    EXPECT_TRUE(lists_bit_equal(lists, before));
  }
}

TEST_F(FusedOptimizerCudaTest, FirstStepAfterSkippedFirstStepIgnoresTheBuffer) {
  auto lists = make_step_lists({{1000}}, {.steps_done = 0}).to(torch::kCUDA);
  lists.momentum_buffers[0].fill_(std::numeric_limits<float>::quiet_NaN());
  const FusedSgdArgs args{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  sgd(lists, args, grad_state(1, 1, torch::kCUDA));
  sgd(lists, args, grad_state(1, 0, torch::kCUDA));
  EXPECT_TRUE(bit_equal(lists.momentum_buffers[0], lists.grads[0]));
  EXPECT_EQ(lists.steps[0].item<float>(), 1);
}

TEST_F(FusedOptimizerCudaTest, PowerOfTwoGradScaleChangesNoBit) {
  auto plain = make_step_lists(large_shapes()).to(torch::kCUDA);
  auto scaled = plain.clone();
  for (auto& grad : scaled.grads) {
    grad.mul_(65536);
  }
  adam(plain, {}, {});
  adam(scaled, {}, grad_state(65536, 0, torch::kCUDA));
  scaled.grads = plain.grads;
  EXPECT_TRUE(lists_bit_equal(scaled, plain));
}

TEST_F(FusedOptimizerCudaTest, UnalignedViewsEqualAlignedTensors) {
  auto expected = make_step_lists(
                      {{1000}, {65537}},
                      {.grad_type = torch::kHalf, .weight_type = torch::kHalf})
                      .to(torch::kCUDA);
  auto views = expected.map([](const torch::Tensor& t) {
    if (t.dim() == 0) {
      return t.clone();
    }
    auto view =
        torch::zeros({t.numel() + 1}, t.options()).narrow(0, 1, t.numel());
    view.copy_(t);
    return view;
  });
  adam(expected, {}, {});
  adam(views, {}, {});
  EXPECT_TRUE(lists_bit_equal(views, expected));
}

TEST_F(FusedOptimizerCudaTest, ReadsHyperparametersFromMemory) {
  const FusedAdamArgs old = {.lr = 0.5};
  const FusedAdamArgs now = {
      .lr = 0.01,
      .weight_decay = 0.1,
      .decoupled_weight_decay = true};
  auto expected = make_step_lists({{1000}, {65537}}).to(torch::kCUDA);
  auto actual = expected.clone();
  adam(expected, now, {});
  fused_adam_(
      actual.tensors(),
      actual.exp_avgs,
      actual.exp_avg_sqs,
      {},
      old,
      {},
      to_tensor(now, actual.params[0].device()));
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

/// The fraction of elements that differ by more than a few units in the last
/// place.
double share_apart(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return 0;
  const auto [rtol, atol] = tolerance(b.scalar_type());
  const torch::Tensor is_close = torch::isclose(
      a.detach().cpu().to(torch::kDouble),
      b.detach().to(torch::kDouble),
      4 * rtol,
      4 * atol,
      /*equal_nan=*/true);
  return 1 - is_close.to(torch::kDouble).mean().item<double>();
}

// Three steps each of RAdam, LAMB, LARS and LARC with Lookahead.
void make_all_kinds_of_steps(StepLists& lists, bool flag) {
  for (int step = 0; step < 3; ++step) {
    tern::fused_adam_(
        lists.tensors(),
        lists.exp_avgs,
        lists.exp_avg_sqs,
        {},
        {.lr = 0.01,
         .beta2 = 0.99,
         .weight_decay = 0.1,
         .decoupled_weight_decay = flag,
         .rectified = !flag,
         .trust_ratio = flag,
         .lookahead = {.k = 2}});
    tern::fused_sgd_(
        lists.tensors(),
        lists.momentum_buffers,
        {.lr = 0.1,
         .momentum = 0.9,
         .weight_decay = 0.1,
         .trust_coeff = 0.02,
         .clip = flag,
         .lookahead = {.k = 2}});
  }
}

// Sizes around the ends of vectors, of blocks of 8-bit moments and of chunks.
std::vector<std::vector<int64_t>> shapes_at_ends() {
  return {
      {3},
      {1020},
      {1023},
      {16384},
      {16384 * 3 + 260},
      {16384 + 5},
      {300, 41}};
}

TEST_F(FusedOptimizerCudaTest, StepsOfEveryKindAreCloseToTheCpu) {
  for (const bool flag : {false, true}) {
    auto cpu = make_step_lists(
        shapes_at_ends(),
        {.grad_type = torch::kHalf,
         .weight_type = torch::kHalf,
         .looks_ahead = true});
    auto cuda = cpu.to(torch::kCUDA);
    make_all_kinds_of_steps(cpu, flag);
    make_all_kinds_of_steps(cuda, flag);
    const auto actual = cuda.lists(), expected = cpu.lists();
    for (size_t list = 0; list < actual.size(); ++list) {
      for (size_t i = 0; i < actual[list]->size(); ++i) {
        EXPECT_LT(share_apart((*actual[list])[i], (*expected[list])[i]), 0.002)
            << "flag " << flag << ", list " << list << ", tensor " << i;
      }
    }
  }
}

// With stochastic rounding or rounding to one of 256 codes, a difference in the
// last bit of the input may change the result.
TEST_F(FusedOptimizerCudaTest, RoundedStepsOfEveryKindAreCloseToTheCpu) {
  for (const bool has_8bit : {false, true}) {
    for (const auto param : {torch::kFloat, torch::kBFloat16}) {
      if (!has_8bit && param == torch::kFloat) continue;
      for (const bool flag : {false, true}) {
        test::StepListOptions options = {
            .grad_type = torch::kBFloat16,
            .looks_ahead = true,
            .has_8bit_moments = has_8bit,
            .param_type = param};
        if (param == torch::kFloat) options.weight_type = torch::kBFloat16;
        auto cpu = make_step_lists(shapes_at_ends(), options);
        auto cuda = cpu.to(torch::kCUDA);
        make_all_kinds_of_steps(cpu, flag);
        make_all_kinds_of_steps(cuda, flag);
        for (size_t i = 0; i < cpu.params.size(); ++i) {
          EXPECT_LT(share_apart(cuda.params[i], cpu.params[i]), 0.05)
              << "8 bits " << has_8bit << ", " << param << ", flag " << flag
              << ", tensor " << i;
        }
      }
    }
  }
}

TEST_F(FusedOptimizerCudaTest, RepeatedStepsAreBitIdentical) {
  for (const bool has_8bit : {false, true}) {
    auto once = make_step_lists(
                    {{1 << 20}, {16384 * 3 + 260}},
                    {.grad_type = torch::kHalf,
                     .weight_type = torch::kHalf,
                     .has_8bit_moments = has_8bit})
                    .to(torch::kCUDA);
    auto again = once.clone();
    for (int step = 0; step < 5; ++step) {
      adam(once, {.trust_ratio = true}, {});
      adam(again, {.trust_ratio = true}, {});
    }
    EXPECT_TRUE(lists_bit_equal(once, again));
  }
}

TEST_F(FusedOptimizerCudaTest, AParameterMayHaveMoreThan2To31Elements) {
  const int64_t size = (int64_t{1} << 31) + 5;
  if (available_memory(torch::kCUDA) < 8 * size) {
    GTEST_SKIP() << "needs 16 GB of the GPU's memory";
  }
  const auto on_gpu = torch::dtype(torch::kFloat).device(torch::kCUDA);
  const auto param = torch::ones({size}, on_gpu);
  const auto grad = torch::ones({size}, on_gpu.dtype(torch::kHalf));
  const auto step = torch::zeros({}, on_gpu);
  const std::vector<torch::Tensor> params = {param}, grads = {grad},
                                   steps = {step};
  tern::fused_sgd_(
      {.params = params, .grads = grads, .weights = {}, .steps = steps},
      {},
      {.lr = 0.5});
  EXPECT_EQ(param.min().item<float>(), 0.5f);
  EXPECT_EQ(param.max().item<float>(), 0.5f);
}

TEST_F(FusedOptimizerCudaTest, RejectsTensorsOfTwoDevices) {
  auto lists = make_step_lists({{4}}).to(torch::kCUDA);
  lists.grads[0] = lists.grads[0].cpu();
  EXPECT_THROW(adam(lists, {}, {}), c10::ValueError);
}

}  // namespace
}  // namespace tern::test::fused_optimizer_cuda_test
