#include <cstring>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/optim/dynamic_map.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::moments_8bit_test {
namespace {

const std::vector<std::vector<int64_t>> kShapes =
    {{1}, {255}, {256}, {257}, {0}, {40, 41}, {5000}};

/// The moment in floats, in the shape of `param`.
torch::Tensor decoded(
    const torch::Tensor& moment,
    const torch::Tensor& param,
    bool is_signed) {
  const auto out = torch::empty_like(param);
  const auto* const bytes = moment.data_ptr<uint8_t>();
  for (int64_t i = 0; i < param.numel(); ++i) {
    const auto* const block = map_block(bytes, i);
    float magnitude = 0;
    std::memcpy(&magnitude, block, sizeof(magnitude));
    const int32_t code = block[sizeof(magnitude) + i % kMapBlock];
    out.data_ptr<float>()[i] = decode_8bit(code, is_signed) * magnitude;
  }
  return out;
}

void step(const StepLists& lists, const FusedAdamArgs& args) {
  fused_adam_(lists.tensors(), lists.exp_avgs, lists.exp_avg_sqs, {}, args);
}

/// The same lists with float moments: the decoded values of the bytes.
StepLists with_floats(const StepLists& lists) {
  StepLists out = lists.clone();
  for (size_t i = 0; i < out.params.size(); ++i) {
    const torch::Tensor& param = out.params[i];
    out.exp_avgs[i] = decoded(lists.exp_avgs[i], param, true);
    out.exp_avg_sqs[i] = decoded(lists.exp_avg_sqs[i], param, false);
  }
  return out;
}

TEST(Moments8Bit, UpdateParametersAsTheirDecodedFloatsDo) {
  for (const bool has_trust : {false, true}) {
    const FusedAdamArgs args = {.weight_decay = 0.1, .trust_ratio = has_trust};
    auto lists = make_step_lists(kShapes, {.has_8bit_moments = true});
    step(lists, args);
    for (auto& grad : lists.grads) grad.sin_();
    auto floats = with_floats(lists);
    step(lists, args);
    step(floats, args);
    for (size_t i = 0; i < kShapes.size(); ++i) {
      EXPECT_TRUE(bit_equal(lists.params[i], floats.params[i]));
    }
  }
}

// Half the distance between adjacent values of the map, relative to a block's
// largest: 0.9 / 64 / 2 signed, 0.9 / 128 / 2 unsigned.
TEST(Moments8Bit, AreWithinTheMapsPrecisionOfFloatMoments) {
  auto lists = make_step_lists({{256}}, {.has_8bit_moments = true});
  auto floats = with_floats(lists);
  step(lists, {});
  step(floats, {});
  const auto actual = with_floats(lists);
  const auto error = [](const torch::Tensor& a, const torch::Tensor& b) {
    return ((a - b).abs().max() / b.abs().max()).item<float>();
  };
  EXPECT_LT(error(actual.exp_avgs[0], floats.exp_avgs[0]), 0.00705);
  EXPECT_LT(error(actual.exp_avg_sqs[0], floats.exp_avg_sqs[0]), 0.00355);
}

TEST(Moments8Bit, HaveOneMagnitudePerBlock) {
  auto lists = make_step_lists({{512}}, {.has_8bit_moments = true});
  lists.grads[0].narrow(0, 0, 256).mul_(1e-6);
  step(lists, {});
  const auto moments = with_floats(lists);
  const auto share = moments.exp_avgs[0] / (0.1 * lists.grads[0]);
  EXPECT_TRUE(
      ((share - 1).abs() < 0.5).to(torch::kFloat).mean().item<float>() > 0.99);
}

TEST(Moments8Bit, RejectMixedTypesAndWrongSizes) {
  auto lists = make_step_lists({{300}}, {.has_8bit_moments = true});
  auto mixed = lists.clone();
  mixed.exp_avgs[0] = torch::zeros({300});
  expect_error<c10::ValueError>(
      [&] { step(mixed, {}); },
      {"1 of 2 moments of params[0] are 8-bit"});
  auto short_one = lists.clone();
  short_one.exp_avgs[0] = torch::zeros({300}, torch::kByte);
  expect_error<c10::ValueError>(
      [&] { step(short_one, {}); },
      {"exp_avgs[0] is [300] kByte", "expected [520] kByte"});
}

}  // namespace
}  // namespace tern::test::moments_8bit_test
