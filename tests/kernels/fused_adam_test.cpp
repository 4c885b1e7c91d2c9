#include <limits>

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/kernels/reference.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::fused_adam_test {
namespace {

const FusedAdamArgs kAdamW{
    .lr = 0.01,
    .weight_decay = 0.1,
    .decoupled_weight_decay = true};

void adam(
    StepLists& lists,
    const FusedAdamArgs& args,
    const GradState& state = {}) {
  fused_adam_(
      lists.tensors(),
      lists.exp_avgs,
      lists.exp_avg_sqs,
      args.amsgrad ? lists.max_exp_avg_sqs : std::vector<torch::Tensor>{},
      args,
      state);
}

void reference_adam(
    StepLists& lists,
    const FusedAdamArgs& args,
    const GradState& state = {}) {
  reference::fused_adam_(
      lists.tensors(),
      lists.exp_avgs,
      lists.exp_avg_sqs,
      args.amsgrad ? lists.max_exp_avg_sqs : std::vector<torch::Tensor>{},
      args,
      state);
}

struct Form {
  const char* name;
  torch::ScalarType grad_type, weight_type;
};

class FusedAdamFormTest
    : public testing::TestWithParam<std::tuple<Form, bool, bool, double>> {};

TEST_P(FusedAdamFormTest, EqualsReferenceBitForBit) {
  const auto& [form, amsgrad, decoupled, grad_scale] = GetParam();
  auto actual = make_step_lists(
      small_shapes(),
      {.grad_type = form.grad_type, .weight_type = form.weight_type});
  auto expected = actual.clone();
  const FusedAdamArgs args{
      .lr = 0.01,
      .weight_decay = 0.1,
      .amsgrad = amsgrad,
      .decoupled_weight_decay = decoupled};
  GradState state;
  if (grad_scale != 1) {
    state = {torch::tensor(grad_scale, torch::kFloat), torch::zeros({})};
  }
  for (int step = 0; step < 3; ++step) {
    adam(actual, args, state);
    reference_adam(expected, args, state);
  }
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

INSTANTIATE_TEST_SUITE_P(
    AllForms,
    FusedAdamFormTest,
    testing::Combine(
        testing::Values(
            Form{"float", torch::kFloat, torch::kFloat},
            Form{"half", torch::kHalf, torch::kHalf},
            Form{"bfloat16", torch::kBFloat16, torch::kBFloat16},
            Form{"half_to_bfloat16", torch::kHalf, torch::kBFloat16},
            Form{"float_to_half", torch::kFloat, torch::kHalf}),
        testing::Bool(),
        testing::Bool(),
        testing::Values(1.0, 1024.0, 3.0)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) +
             (std::get<1>(info.param) ? "_amsgrad" : "") +
             (std::get<2>(info.param) ? "_decoupled" : "_l2") + "_scale_" +
             std::to_string(static_cast<int>(std::get<3>(info.param)));
    });

/// Ten steps of a LibTorch optimizer on copies of `lists.params`.
template <class Optimizer, class Options>
std::vector<torch::Tensor> libtorch_params(
    const StepLists& lists,
    const std::vector<std::vector<torch::Tensor>>& grads,
    Options options) {
  std::vector<torch::Tensor> params;
  for (const auto& param : lists.params) {
    params.push_back(param.clone().requires_grad_());
  }
  Optimizer optimizer(params, options);
  for (const auto& step_grads : grads) {
    for (size_t i = 0; i < params.size(); ++i) {
      params[i].mutable_grad() = step_grads[i];
    }
    optimizer.step();
  }
  return params;
}

StepLists fresh_lists(const std::vector<std::vector<int64_t>>& shapes) {
  auto lists = make_step_lists(shapes, {.steps_done = 0});
  for (auto* list :
       {&lists.exp_avgs, &lists.exp_avg_sqs, &lists.max_exp_avg_sqs}) {
    for (auto& tensor : *list) {
      tensor.zero_();
    }
  }
  return lists;
}

std::vector<std::vector<torch::Tensor>> ten_grads(const StepLists& lists) {
  std::vector<std::vector<torch::Tensor>> out(10);
  for (auto& grads : out) {
    for (const auto& param : lists.params) {
      grads.push_back(torch::randn_like(param));
    }
  }
  return out;
}

const std::vector<std::vector<int64_t>> kShapes = {{7}, {64, 33}, {3, 5, 3, 3}};

class FusedAdamLibTorchTest : public testing::TestWithParam<bool> {};

TEST_P(FusedAdamLibTorchTest, TenStepsEqualTorchOptimAdamW) {
  auto lists = fresh_lists(kShapes);
  const auto grads = ten_grads(lists);
  const auto expected = libtorch_params<torch::optim::AdamW>(
      lists,
      grads,
      torch::optim::AdamWOptions(0.01).weight_decay(0.1).amsgrad(GetParam()));
  auto args = kAdamW;
  args.amsgrad = GetParam();
  for (const auto& step_grads : grads) {
    lists.grads = step_grads;
    adam(lists, args);
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(all_close(lists.params[i], expected[i]));
    EXPECT_EQ(lists.steps[i].item<float>(), 10);
  }
}

TEST_P(FusedAdamLibTorchTest, TenStepsEqualTorchOptimAdam) {
  auto lists = fresh_lists(kShapes);
  const auto grads = ten_grads(lists);
  const auto expected = libtorch_params<torch::optim::Adam>(
      lists,
      grads,
      torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(GetParam()));
  for (const auto& step_grads : grads) {
    lists.grads = step_grads;
    adam(lists, {.lr = 0.01, .weight_decay = 0.1, .amsgrad = GetParam()});
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(all_close(lists.params[i], expected[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Amsgrad, FusedAdamLibTorchTest, testing::Bool());

TEST(FusedAdam, EqualsFusedAdamWOfATen) {
  auto lists = make_step_lists(kShapes);
  auto theirs = lists.clone();
  const auto scale = torch::tensor(128.0f), found_inf = torch::zeros({});
  for (auto& step : theirs.steps) {
    step.add_(1);  // ATen expects the count after this step
  }
  at::_fused_adamw_(
      theirs.params,
      theirs.grads,
      theirs.exp_avgs,
      theirs.exp_avg_sqs,
      {},
      theirs.steps,
      kAdamW.lr,
      kAdamW.beta1,
      kAdamW.beta2,
      kAdamW.weight_decay,
      kAdamW.eps,
      /*amsgrad=*/false,
      /*maximize=*/false,
      scale,
      found_inf);
  adam(lists, kAdamW, {scale, found_inf});
  for (size_t i = 0; i < lists.params.size(); ++i) {
    EXPECT_TRUE(all_close(lists.params[i], theirs.params[i]));
    EXPECT_TRUE(all_close(lists.exp_avgs[i], theirs.exp_avgs[i]));
    EXPECT_TRUE(all_close(lists.exp_avg_sqs[i], theirs.exp_avg_sqs[i]));
  }
}

class FusedAdamSkipTest : public testing::TestWithParam<float> {};

TEST_P(FusedAdamSkipTest, LeavesEverythingBitForBit) {
  auto lists = make_step_lists(
      small_shapes(),
      {.grad_type = torch::kHalf, .weight_type = torch::kHalf});
  auto before = lists.clone();
  auto args = kAdamW;
  args.amsgrad = true;
  adam(lists, args, {torch::tensor(4.0f), torch::tensor(GetParam())});
  EXPECT_TRUE(lists_bit_equal(lists, before));
}

// 2 is the sum over two devices. PyTorch's kernels read it as "no overflow".
INSTANTIATE_TEST_SUITE_P(
    FoundInf,
    FusedAdamSkipTest,
    testing::Values(
        1.f,
        2.f,
        0.5f,
        -1.f,
        std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()));

TEST(FusedAdam, FirstStepAfterSkippedFirstStepIsAFirstStep) {
  auto lists = fresh_lists(kShapes);
  auto expected = lists.clone();
  adam(lists, kAdamW, {torch::tensor(4.0f), torch::tensor(1.0f)});
  adam(lists, kAdamW, {torch::tensor(4.0f), torch::tensor(0.0f)});
  adam(expected, kAdamW, {torch::tensor(4.0f), torch::tensor(0.0f)});
  EXPECT_TRUE(lists_bit_equal(lists, expected));
}

TEST(FusedAdam, PowerOfTwoGradScaleChangesNoBit) {
  for (const float scale : {65536.0f, 0.25f}) {
    for (const auto grad_type :
         {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
      auto plain = make_step_lists(
          small_shapes(),
          {.grad_type = grad_type, .weight_type = torch::kBFloat16});
      for (auto& grad : plain.grads) {
        // Small enough that halves neither overflow nor lose bits.
        grad = (grad.to(torch::kFloat) * 0.25).clamp(-0.9, 0.9).to(grad_type);
        grad.masked_fill_(grad.abs() < 0.01, 0.5);
      }
      auto scaled = plain.clone();
      const bool fits = grad_type != torch::kHalf || scale < 65536;
      const float factor = fits ? scale : 16384.0f;
      for (auto& grad : scaled.grads) {
        grad.mul_(factor);
      }
      adam(plain, kAdamW);
      adam(scaled, kAdamW, {torch::tensor(factor), torch::zeros({})});
      scaled.grads = plain.grads;
      EXPECT_TRUE(lists_bit_equal(scaled, plain));
    }
  }
}

TEST(FusedAdam, GradientsAreNeverWritten) {
  auto lists = make_step_lists(kShapes, {.grad_type = torch::kHalf});
  const auto before = lists.clone();
  adam(lists, kAdamW, {torch::tensor(4.0f), torch::zeros({})});
  for (size_t i = 0; i < lists.grads.size(); ++i) {
    EXPECT_TRUE(bit_equal(lists.grads[i], before.grads[i]));
  }
}

TEST(FusedAdam, UnalignedViewsEqualAlignedTensors) {
  auto expected = make_step_lists(
      {{1000}, {65537}},
      {.grad_type = torch::kBFloat16, .weight_type = torch::kBFloat16});
  auto views = expected.map([](const torch::Tensor& t) {
    if (t.dim() == 0) {
      return t.clone();
    }
    auto room = torch::zeros({t.numel() + 2}, t.options());
    auto view = room.narrow(0, 1, t.numel());
    view.copy_(t);
    return view;
  });
  adam(expected, kAdamW);
  adam(views, kAdamW);
  EXPECT_TRUE(lists_bit_equal(views, expected));
  for (const auto& view : views.params) {
    const auto room = torch::from_blob(
        view.data_ptr<float>() - 1,
        {view.numel() + 2},
        torch::kFloat);
    EXPECT_EQ(room[0].item<float>(), 0) << "wrote before the view";
    EXPECT_EQ(room[-1].item<float>(), 0) << "wrote after the view";
  }
}

torch::Tensor channels_last(const torch::Tensor& t) {
  return t.dim() == 4 ? t.contiguous(at::MemoryFormat::ChannelsLast)
                      : t.clone();
}

TEST(FusedAdam, ChannelsLastEqualsContiguous) {
  auto expected = make_step_lists(
      {{8, 4, 3, 3}, {16, 8, 1, 1}, {5}},
      {.weight_type = torch::kHalf});
  auto actual = expected.map(channels_last);
  adam(expected, kAdamW);
  adam(actual, kAdamW);
  EXPECT_TRUE(actual.params[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

TEST(FusedAdam, GradientsOfOtherStridesAreRearranged) {
  auto expected = make_step_lists({{8, 4, 3, 3}, {6, 10}});
  auto actual = expected.clone();
  actual.grads[0] = channels_last(actual.grads[0]);
  actual.grads[1] = actual.grads[1].t().contiguous().t();
  adam(expected, kAdamW);
  adam(actual, kAdamW);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(bit_equal(actual.params[i], expected.params[i]));
  }
}

TEST(FusedAdam, WeightsMayBeUndefinedPerIndex) {
  auto lists = make_step_lists(
      kShapes,
      {.grad_type = torch::kHalf, .weight_type = torch::kHalf});
  lists.weights[1] = torch::Tensor();
  lists.grads[1] = lists.grads[1].to(torch::kFloat);
  auto expected = lists.clone();
  adam(lists, kAdamW);
  reference_adam(expected, kAdamW);
  EXPECT_TRUE(lists_bit_equal(lists, expected));
}

TEST(FusedAdam, ParametersMayBeAtDifferentSteps) {
  auto lists = make_step_lists(kShapes);
  lists.steps[0].fill_(0);
  lists.steps[2].fill_(1000);
  auto expected = lists.clone();
  adam(lists, kAdamW);
  reference_adam(expected, kAdamW);
  EXPECT_TRUE(lists_bit_equal(lists, expected));
  EXPECT_EQ(lists.steps[2].item<float>(), 1001);
}

TEST(FusedAdam, ResultDoesNotDependOnThreads) {
  auto one = make_step_lists(large_shapes(), {.weight_type = torch::kHalf});
  auto many = one.clone();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  adam(one, kAdamW);
  at::set_num_threads(7);
  adam(many, kAdamW);
  at::set_num_threads(threads);
  EXPECT_TRUE(lists_bit_equal(many, one));
}

TEST(FusedAdam, ANaNGradientGivesANaNWeight) {
  auto lists = make_step_lists(
      {{40}},
      {.grad_type = torch::kHalf, .weight_type = torch::kBFloat16});
  lists.grads[0][3] = std::numeric_limits<float>::quiet_NaN();
  adam(lists, kAdamW);
  EXPECT_TRUE(lists.params[0][3].isnan().item<bool>());
  EXPECT_TRUE(lists.weights[0][3].isnan().item<bool>());
  EXPECT_EQ(lists.weights[0].isnan().sum().item<int64_t>(), 1);
}

TEST(FusedAdam, AutogradSeesTheWrite) {
  auto lists = make_step_lists({{4}}, {.weight_type = torch::kHalf});
  const auto param_version = lists.params[0]._version();
  const auto weight_version = lists.weights[0]._version();
  adam(lists, kAdamW);
  EXPECT_GT(lists.params[0]._version(), param_version);
  EXPECT_GT(lists.weights[0]._version(), weight_version);
}

TEST(FusedAdam, EqualsReferenceAtTheChunkEndsOfThreads) {
  auto actual = make_step_lists(
      large_shapes(),
      {.grad_type = torch::kBFloat16, .weight_type = torch::kBFloat16});
  auto expected = actual.clone();
  adam(actual, kAdamW);
  reference_adam(expected, kAdamW);
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

TEST(FusedAdam, ReadsHyperparametersFromMemory) {
  const FusedAdamArgs old = {.lr = 0.5, .weight_decay = 0.3};
  const FusedAdamArgs now = {
      .lr = 0.01,
      .beta1 = 0.8,
      .weight_decay = 0.1,
      .decoupled_weight_decay = true};
  auto expected = make_step_lists({{7}, {2, 3}});
  auto actual = expected.clone();
  const auto step =
      [](StepLists& l, const FusedAdamArgs& args, const torch::Tensor& at) {
        fused_adam_(l.tensors(), l.exp_avgs, l.exp_avg_sqs, {}, args, {}, at);
      };
  step(expected, now, {});
  const torch::Tensor memory = to_tensor(old, torch::kCPU);
  memory.copy_(to_tensor(now, torch::kCPU));
  step(actual, old, memory);
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

TEST(FusedAdam, EmptyListsDoNothing) {
  EXPECT_NO_THROW(fused_adam_({}, {}, {}, {}, kAdamW));
}

}  // namespace
}  // namespace tern::test::fused_adam_test
