#include "tern/kernels/optim/unscale_and_check.h"

#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/kernels/reference.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::unscale_and_check_test {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<torch::Tensor> clone(const std::vector<torch::Tensor>& list) {
  std::vector<torch::Tensor> out;
  for (const auto& tensor : list) {
    out.push_back(tensor.clone());
  }
  return out;
}

class UnscaleAndCheckTest : public testing::TestWithParam<torch::ScalarType> {};

TEST_P(UnscaleAndCheckTest, EqualsReferenceBitForBit) {
  torch::manual_seed(3);
  std::vector<torch::Tensor> actual;
  for (const int64_t size : {1, 3, 4, 0, 1000, 65535, 65536, 65537}) {
    actual.push_back((torch::randn({size}) * 100).to(GetParam()));
  }
  auto expected = clone(actual);
  for (const float inv_scale : {0.5f, 0.3f, 1.0f}) {
    auto found = torch::zeros({}), expected_found = torch::zeros({});
    unscale_and_check_(actual, torch::tensor(inv_scale), found);
    reference::unscale_and_check_(
        expected,
        torch::tensor(inv_scale),
        expected_found);
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(bit_equal(actual[i], expected[i])) << "tensor " << i;
    }
    EXPECT_EQ(found.item<float>(), 0);
  }
}

TEST_P(UnscaleAndCheckTest, FindsEveryNonFiniteValueAtEveryPlace) {
  for (const float value : {kInf, -kInf, kNaN, -kNaN}) {
    for (const int64_t place : {0L, 1L, 2047L, 2048L, 70000L, 70001L}) {
      auto grads = std::vector<torch::Tensor>{
          torch::ones({5}, GetParam()),
          torch::ones({70002}, GetParam())};
      grads[1][place] = value;
      auto checked = torch::zeros({}), unscaled = torch::zeros({1});
      check_finite(grads, checked);
      unscale_and_check_(grads, torch::tensor(0.25f), unscaled);
      EXPECT_EQ(checked.item<float>(), 1) << value << " at " << place;
      EXPECT_EQ(unscaled.item<float>(), 1) << value << " at " << place;
      EXPECT_EQ(grads[0][4].item<float>(), 0.25f)
          << "other values must be unscaled too";
    }
  }
}

TEST_P(UnscaleAndCheckTest, LargestFiniteValueIsFinite) {
  const double largest =
      GetParam() == torch::kHalf       ? 65504
      : GetParam() == torch::kBFloat16 ? 3.3895313892515355e38
      : GetParam() == torch::kDouble   ? std::numeric_limits<double>::max()
                                       : std::numeric_limits<float>::max();
  auto grad = torch::full({100}, largest, GetParam());
  grad[50] = -largest;
  auto found = torch::zeros({});
  check_finite({grad}, found);
  EXPECT_EQ(found.item<float>(), 0);
}

// As in torch._amp_foreach_non_finite_check_and_unscale_, the check looks at
// the gradient before the multiplication.
TEST_P(UnscaleAndCheckTest, ChecksBeforeItMultiplies) {
  auto grads =
      std::vector<torch::Tensor>{torch::full({3}, 60000.0, GetParam())};
  auto found = torch::zeros({});
  unscale_and_check_(grads, torch::tensor(kInf), found);
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_EQ(grads[0][0].item<float>(), kInf);
}

INSTANTIATE_TEST_SUITE_P(
    AllTypes,
    UnscaleAndCheckTest,
    testing::Values(
        torch::kFloat,
        torch::kDouble,
        torch::kHalf,
        torch::kBFloat16),
    [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(UnscaleAndCheck, EqualsTheOperatorOfATen) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    auto actual = std::vector<torch::Tensor>{
        torch::randn({333}).to(type),
        torch::randn({7, 5}).to(type)};
    actual[1][2][2] = kNaN;
    auto expected = clone(actual);
    auto found = torch::zeros({}), expected_found = torch::zeros({1});
    const auto inv_scale = torch::tensor(1.0f / 3);
    unscale_and_check_(actual, inv_scale, found);
    at::_amp_foreach_non_finite_check_and_unscale_(
        expected,
        expected_found,
        inv_scale);
    EXPECT_EQ(found.item<float>(), expected_found.item<float>());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(all_close(actual[i], expected[i]));
    }
  }
}

TEST(UnscaleAndCheck, AcceptsMixedDtypesInOneCall) {
  auto grads = std::vector<torch::Tensor>{
      torch::full({3}, 4.0f),
      torch::full({3}, 4.0, torch::kDouble),
      torch::full({3}, 4.0, torch::kHalf),
      torch::full({3}, 4.0, torch::kBFloat16)};
  auto found = torch::zeros({});
  unscale_and_check_(grads, torch::tensor(0.25f), found);
  for (const auto& grad : grads) {
    EXPECT_TRUE(bit_equal(grad, torch::ones({3}, grad.options())));
  }
}

TEST(UnscaleAndCheck, KeepsFoundInfIfAllValuesAreFinite) {
  for (const float before : {0.0f, 1.0f, 2.0f}) {
    auto found = torch::tensor(before);
    unscale_and_check_({torch::ones({3})}, torch::tensor(0.5f), found);
    check_finite({torch::ones({3})}, found);
    EXPECT_EQ(found.item<float>(), before);
  }
}

TEST(UnscaleAndCheck, MultipliesFiniteGradsBesideANaN) {
  auto grad = torch::tensor({kNaN, 4.0f, 8.0f});
  auto found = torch::zeros({});
  unscale_and_check_({grad}, torch::tensor(0.25f), found);
  EXPECT_TRUE(all_close(grad, torch::tensor({kNaN, 1.0f, 2.0f})));
  EXPECT_EQ(found.item<float>(), 1);
}

TEST(UnscaleAndCheck, InvScaleOfOneWritesNothing) {
  // A multiplication would turn a signaling NaN into a quiet NaN.
  auto grad = torch::full({8}, 0x7F800001, torch::kInt).view(torch::kFloat);
  const auto before = grad.clone();
  auto found = torch::zeros({});
  unscale_and_check_({grad}, torch::ones({}), found);
  EXPECT_TRUE(bit_equal(grad, before));
  EXPECT_EQ(found.item<float>(), 1);
}

TEST(UnscaleAndCheck, CheckFiniteWritesNoGradient) {
  auto grad = torch::randn({1000}).to(torch::kHalf);
  const auto before = grad.clone();
  const auto version = grad._version();
  check_finite({grad}, torch::zeros({}));
  EXPECT_TRUE(bit_equal(grad, before));
  EXPECT_EQ(grad._version(), version);
}

/// The views of PyTorch's own test: contiguous, transposed, sliced.
std::vector<torch::Tensor> views_of(
    float value,
    torch::ScalarType type = torch::kFloat) {
  const auto make = [&](std::vector<int64_t> sizes) {
    return torch::full(sizes, value, type);
  };
  return {
      make({10, 10}),
      make({10, 10}).t(),
      make({20, 20}).slice(0, 0, 20, 2).slice(1, 5, 15),
      make({10, 10, 10}).select(1, 3),
      make({2, 10, 10, 10}).contiguous(at::MemoryFormat::ChannelsLast)};
}

TEST(UnscaleAndCheck, UnscalesTransposedAndSlicedGrads) {
  for (const auto type : {torch::kFloat, torch::kHalf}) {
    const auto grads = views_of(4, type);
    auto found = torch::zeros({});
    unscale_and_check_(grads, torch::tensor(0.25f), found);
    for (const auto& grad : grads) {
      EXPECT_TRUE(all_close(grad, torch::ones_like(grad)));
    }
    EXPECT_EQ(found.item<float>(), 0);
  }
}

TEST(UnscaleAndCheck, FindsInfInTransposedAndSlicedGrads) {
  for (size_t i = 0; i < views_of(1).size(); ++i) {
    for (const float value : {kInf, kNaN}) {
      auto grads = views_of(1);
      grads[i][1][2].fill_(value);
      auto found = torch::zeros({}), checked = torch::zeros({});
      check_finite(grads, checked);
      unscale_and_check_(grads, torch::tensor(0.5f), found);
      EXPECT_EQ(checked.item<float>(), 1) << "grad " << i;
      EXPECT_EQ(found.item<float>(), 1) << "grad " << i;
    }
  }
}

TEST(UnscaleAndCheck, LeavesTheGapsOfASliceUntouched) {
  auto whole = torch::full({20}, 4.0f);
  whole[1] = kInf;  // in a gap
  auto found = torch::zeros({});
  unscale_and_check_({whole.slice(0, 0, 20, 2)}, torch::tensor(0.25f), found);
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_EQ(whole[2].item<float>(), 1);
  EXPECT_EQ(whole[3].item<float>(), 4);
}

TEST(UnscaleAndCheck, UnscalesTheValuesOfASparseGrad) {
  const auto indices = torch::tensor({{1, 1, 3}});
  auto grad = torch::sparse_coo_tensor(indices, torch::ones({3, 2}), {5, 2});
  auto found = torch::zeros({});
  unscale_and_check_({grad._values()}, torch::tensor(0.5f), found);
  EXPECT_FALSE(grad.is_coalesced());
  EXPECT_EQ(grad.to_dense()[1][0].item<float>(), 1);
  EXPECT_EQ(grad.to_dense()[3][0].item<float>(), 0.5f);
}

TEST(UnscaleAndCheck, EmptyListIsAllowed) {
  auto found = torch::zeros({});
  unscale_and_check_({}, torch::ones({}), found);
  check_finite({}, found);
  EXPECT_EQ(found.item<float>(), 0);
}

TEST(UnscaleAndCheck, GradsThatRequireGradAreWritten) {
  auto grad = torch::full({4}, 4.0f).requires_grad_();
  unscale_and_check_({grad}, torch::tensor(0.25f), torch::zeros({}));
  EXPECT_EQ(grad[0].item<float>(), 1);
}

void expect_rejected(
    std::vector<torch::Tensor> grads,
    const torch::Tensor& inv_scale,
    const torch::Tensor& found,
    const std::string& says) {
  const auto first =
      grads.empty() || !grads[0].defined() ? torch::Tensor() : grads[0].clone();
  try {
    unscale_and_check_(grads, inv_scale, found);
    FAIL() << "did not throw: " << says;
  } catch (const c10::ValueError& error) {
    EXPECT_NE(error.msg().find("[unscale_and_check_] "), std::string::npos);
    EXPECT_NE(error.msg().find(says), std::string::npos) << error.msg();
  }
  if (first.defined() && !first.is_sparse()) {
    EXPECT_TRUE(bit_equal(grads[0], first)) << "wrote before it checked";
  }
}

TEST(UnscaleAndCheck, RejectsBadArgumentsBeforeWriting) {
  const auto ones = torch::ones({2}), half = torch::tensor(0.5f);
  const auto found = torch::zeros({});
  expect_rejected(
      {ones, torch::Tensor()},
      half,
      found,
      "grads[1] is undefined");
  expect_rejected(
      {ones, torch::ones({2}, torch::kLong)},
      half,
      found,
      "[2] kLong on cpu");
  expect_rejected({ones, ones.to_sparse()}, half, found, "_values()");
  expect_rejected(
      {ones, torch::ones({1}).expand({4})},
      half,
      found,
      "Clone it first");
  expect_rejected({ones}, torch::ones({2}), found, "inv_scale is [2] kFloat");
  expect_rejected(
      {ones},
      half,
      torch::zeros({}, torch::kInt),
      "found_inf is [] kInt");
  expect_rejected({ones}, half, torch::Tensor(), "found_inf is undefined");
  expect_rejected({ones}, torch::Tensor(), found, "inv_scale is undefined");
}

}  // namespace
}  // namespace tern::test::unscale_and_check_test
