#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/kernels/step_lists.h"

namespace tern::test::fused_optimizer_checks_test {
namespace {

struct Case {
  const char* name;
  void (*spoil)(StepLists&, FusedAdamArgs&);
  /// A substring of the message.
  const char* says;
};

class FusedOptimizerChecksTest : public testing::TestWithParam<Case> {};

TEST_P(FusedOptimizerChecksTest, RejectsAndWritesNothing) {
  auto lists = make_step_lists(
      {{4}, {2, 3}},
      {.grad_type = torch::kHalf, .weight_type = torch::kHalf});
  lists.max_exp_avg_sqs.clear();
  FusedAdamArgs args;
  GetParam().spoil(lists, args);
  auto before = lists.clone();
  try {
    fused_adam_(
        lists.tensors(),
        lists.exp_avgs,
        lists.exp_avg_sqs,
        lists.max_exp_avg_sqs,
        args);
    FAIL() << "did not throw";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(error.msg().find("[fused_adam_] "), std::string::npos);
    EXPECT_NE(error.msg().find(GetParam().says), std::string::npos)
        << error.msg();
  }
  EXPECT_TRUE(lists_bit_equal(lists, before));
}

const Case kCases[] = {
    {"undefined_grad",
     [](StepLists& l, FusedAdamArgs&) { l.grads[1] = torch::Tensor(); },
     "grads[1] is undefined"},
    {"long_grad",
     [](StepLists& l, FusedAdamArgs&) {
       l.grads[1] = torch::ones({2, 3}, torch::kLong);
     },
     "grads[1] is [2, 3] kLong on cpu; expected [2, 3] kFloat, kHalf or "
     "kBFloat16"},
    {"double_grad",
     [](StepLists& l, FusedAdamArgs&) {
       l.grads[0] = torch::ones({4}, torch::kDouble);
     },
     "grads[0] is [4] kDouble"},
    {"sparse_grad",
     [](StepLists& l, FusedAdamArgs&) {
       l.grads[0] = torch::ones({4}).to_sparse();
     },
     "not sparse"},
    {"grad_of_other_size",
     [](StepLists& l, FusedAdamArgs&) {
       l.grads[1] = torch::ones({3, 2});
     },
     "grads[1] is [3, 2] kFloat"},
    {"too_few_grads",
     [](StepLists& l, FusedAdamArgs&) { l.grads.pop_back(); },
     "grads has 1 tensors; expected 2"},
    {"half_param",
     [](StepLists& l, FusedAdamArgs&) {
       l.params[1] = l.params[1].to(torch::kHalf);
     },
     "params[1] is [2, 3] kHalf"},
    {"undefined_param",
     [](StepLists& l, FusedAdamArgs&) { l.params[0] = torch::Tensor(); },
     "params[0] is undefined"},
    {"param_with_gaps",
     [](StepLists& l, FusedAdamArgs&) {
       l.params[1] = torch::ones({2, 6}).slice(1, 0, 6, 2);
     },
     "strides [6, 2]; expected a dense kFloat"},
    {"moment_of_other_strides",
     [](StepLists& l, FusedAdamArgs&) {
       l.exp_avgs[1] = torch::ones({3, 2}).t();
     },
     "exp_avgs[1] is [2, 3] kFloat on cpu with strides [1, 2]; expected kFloat "
     "with sizes [2, 3] and strides [3, 1]"},
    {"half_moment",
     [](StepLists& l, FusedAdamArgs&) {
       l.exp_avg_sqs[0] = torch::ones({4}, torch::kHalf);
     },
     "exp_avg_sqs[0] is [4] kHalf"},
    {"undefined_moment",
     [](StepLists& l, FusedAdamArgs&) { l.exp_avgs[0] = torch::Tensor(); },
     "exp_avgs[0] is undefined"},
    {"float_weight",
     [](StepLists& l, FusedAdamArgs&) { l.weights[0] = torch::ones({4}); },
     "weights[0] is [4] kFloat"},
    {"too_few_weights",
     [](StepLists& l, FusedAdamArgs&) { l.weights.pop_back(); },
     "weights has 1 tensors"},
    {"long_step",
     [](StepLists& l, FusedAdamArgs&) {
       l.steps[1] = torch::zeros({}, torch::kLong);
     },
     "steps[1] is [] kLong on cpu; expected one kFloat"},
    {"amsgrad_without_its_list",
     [](StepLists&, FusedAdamArgs& args) { args.amsgrad = true; },
     "max_exp_avg_sqs has 0 tensors; expected 2"},
    {"list_without_amsgrad",
     [](StepLists& l, FusedAdamArgs&) { l.max_exp_avg_sqs = l.exp_avgs; },
     "because amsgrad is off"},
    {"lookahead_without_its_list",
     [](StepLists&, FusedAdamArgs& args) { args.lookahead.k = 6; },
     "slow_weights has 0 tensors; expected 2"},
    {"trust_ratio_of_amsgrad",
     [](StepLists& l, FusedAdamArgs& args) {
       l.max_exp_avg_sqs = l.exp_avgs;
       args.amsgrad = args.trust_ratio = true;
     },
     "amsgrad and trust_ratio are both set"},
    {"other_device",
     [](StepLists& l, FusedAdamArgs&) {
       l.grads[0] = torch::empty({4}, torch::kMeta);
     },
     "grads[0] is [4] kFloat on meta; expected [4]"},
};

INSTANTIATE_TEST_SUITE_P(
    Spoiled,
    FusedOptimizerChecksTest,
    testing::ValuesIn(kCases),
    [](const auto& info) { return info.param.name; });

TEST(FusedOptimizerChecks, RejectsInvalidGradScaleAndFoundInf) {
  auto lists = make_step_lists({{4}});
  EXPECT_THROW(
      fused_adam_(
          lists.tensors(),
          lists.exp_avgs,
          lists.exp_avg_sqs,
          {},
          {},
          {torch::ones({2}), torch::zeros({})}),
      c10::ValueError);
  EXPECT_THROW(
      fused_adam_(
          lists.tensors(),
          lists.exp_avgs,
          lists.exp_avg_sqs,
          {},
          {},
          {torch::ones({}), torch::zeros({}, torch::kInt)}),
      c10::ValueError);
}

TEST(FusedOptimizerChecks, RejectsADeviceWithoutKernels) {
  auto lists = make_step_lists({{4}});
  auto meta = lists.to(torch::kMeta);
  EXPECT_THROW(fused_sgd_(meta.tensors(), {}, {}), c10::NotImplementedError);
}

TEST(FusedOptimizerChecks, RejectsMomentumBuffersWithoutMomentum) {
  auto lists = make_step_lists({{4}});
  try {
    fused_sgd_(lists.tensors(), lists.momentum_buffers, {.lr = 0.1});
    FAIL() << "did not throw";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(error.msg().find("momentum is 0"), std::string::npos);
  }
}

TEST(FusedOptimizerChecks, RejectsArgsOnDeviceOfADifferentKernel) {
  auto lists = make_step_lists({{4}});
  const auto before = lists.clone();
  try {
    fused_adam_(
        lists.tensors(),
        lists.exp_avgs,
        lists.exp_avg_sqs,
        {},
        {},
        {},
        to_tensor(FusedSgdArgs{}, torch::kCPU));
    FAIL() << "did not throw";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(
        error.msg().find("[fused_adam_] args_on_device is 80 Byte on cpu; "
                         "expected 64 bytes on cpu"),
        std::string::npos)
        << error.msg();
  }
  auto unchanged = before.clone();
  EXPECT_TRUE(lists_bit_equal(lists, unchanged));
}

}  // namespace
}  // namespace tern::test::fused_optimizer_checks_test
