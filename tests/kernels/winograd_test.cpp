#include "tern/kernels/winograd.h"

#include <limits>

#include <ATen/ops/conv2d.h>
#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::winograd_test {
namespace {

using Numbers = std::vector<int64_t>;

struct Case {
  Numbers images;  // [N, C, H, W]
  int64_t outputs;
  Numbers padding = {1, 1};
  bool has_bias = true, has_other = false, relu = false;
};

using Winograd = test::CpuKernel;

double largest(const torch::Tensor& numbers) {
  return numbers.abs().max().item<double>();
}

/// Expects the result of the direct convolution in double.
void expect_right(const Case& c, const Numbers& made_for) {
  const torch::Tensor x = torch::randn(c.images);
  const torch::Tensor w = torch::randn({c.outputs, c.images[1], 3, 3});
  std::optional<torch::Tensor> bias, other;
  if (c.has_bias) bias = torch::randn({c.outputs});
  const auto doubles = [](const torch::Tensor& t) { return t.to(at::kDouble); };
  torch::Tensor expected = at::conv2d(
      doubles(x),
      doubles(w),
      bias ? doubles(*bias) : torch::Tensor(),
      1,
      c.padding);
  if (c.has_other) {
    other = torch::randn(expected.sizes());
    expected += *other;
  }
  if (c.relu) expected = expected.relu();
  const torch::Tensor y = winograd_conv2d(
      x,
      winograd_weight(w, made_for, c.padding),
      bias,
      c.padding,
      other,
      c.relu);
  EXPECT_EQ(y.sizes(), expected.sizes());
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(largest(y - expected), 2e-5 * largest(expected)) << x.sizes();
}

TEST_F(Winograd, EqualsTheConvolutionForAnySizePaddingAndBatch) {
  for (const Case& c : std::vector<Case>{
           {{1, 16, 16, 16}, 16},
           {{1, 32, 13, 22}, 48},
           {{3, 16, 9, 7}, 32, {0, 0}},
           {{2, 16, 14, 15}, 16, {2, 1}},
           {{17, 64, 14, 14}, 32},
           {{5, 16, 3, 3}, 16, {0, 0}},
           {{2, 16, 30, 18}, 16, {1, 0}},
           {{1, 256, 8, 64}, 64},
           {{3, 16, 150, 130}, 16}}) {
    expect_right(c, c.images);
  }
}

TEST_F(Winograd, AddsABiasAndAnotherTensorAndAppliesRelu) {
  for (const bool has_bias : {false, true}) {
    for (const bool has_other : {false, true}) {
      for (const bool relu : {false, true}) {
        const Case c{{3, 16, 11, 18}, 32, {1, 1}, has_bias, has_other, relu};
        expect_right(c, c.images);
      }
    }
  }
}

TEST_F(Winograd, AcceptsImageSizesOtherThanTheWeightWasCreatedFor) {
  expect_right({{3, 32, 21, 10}, 16}, {1, 32, 56, 56});
  expect_right({{1, 32, 56, 56}, 16}, {16, 32, 7, 7});
}

TEST_F(Winograd, IsBitIdenticalOnEveryInstructionSet) {
  const torch::Tensor x = torch::randn({2, 32, 15, 17});
  const torch::Tensor weight =
      winograd_weight(torch::randn({16, 32, 3, 3}), x.sizes(), {1, 1});
  const auto convolve = [&] {
    return winograd_conv2d(x, weight, {}, {1, 1}, {}, true);
  };
  const torch::Tensor best = convolve();
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2}) {
    set_cpu_isa(isa);
    EXPECT_TRUE(convolve().equal(best));
  }
}

TEST_F(Winograd, KeepsNaNWhereTheConvolutionHasIt) {
  torch::Tensor x = torch::randn({1, 16, 16, 16});
  x[0][3][6][6] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor w = torch::randn({16, 16, 3, 3});
  const torch::Tensor expected = at::conv2d(x, w, {}, 1, 1).isnan();
  const torch::Tensor found = winograd_conv2d(
                                  x,
                                  winograd_weight(w, x.sizes(), {1, 1}),
                                  {},
                                  {1, 1},
                                  {},
                                  true)
                                  .isnan();
  EXPECT_TRUE((found | ~expected).all().item<bool>());
  EXPECT_FALSE(found[0][0][15][15].item<bool>());
}

TEST_F(Winograd, PaysForEnoughPixelsAndChannels) {
  const Numbers weight = {64, 64, 3, 3}, padding = {1, 1};
  const bool has_vectors =
      best_cpu_isa() == CpuIsa::avx2 || best_cpu_isa() == CpuIsa::avx512;
  EXPECT_EQ(winograd_pays({1, 64, 14, 14}, weight, padding), has_vectors);
  EXPECT_EQ(winograd_pays({16, 64, 7, 7}, weight, padding), has_vectors);
  EXPECT_FALSE(winograd_pays({1, 64, 7, 7}, weight, padding));
  EXPECT_FALSE(winograd_pays({1, 64, 1, 1}, weight, {0, 0}));
  EXPECT_FALSE(winograd_pays({1, 64, 56, 56}, {64, 64, 5, 5}, padding));
  EXPECT_FALSE(winograd_pays({1, 3, 56, 56}, {64, 3, 3, 3}, padding));
  EXPECT_FALSE(winograd_pays({1, 64, 56, 56}, {24, 64, 3, 3}, padding));
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(winograd_pays({1, 64, 56, 56}, weight, padding));
}

TEST_F(Winograd, RejectsInputsThatItWouldReadOutOfBounds) {
  const torch::Tensor x = torch::randn({5, 16, 16, 16});
  const torch::Tensor weight =
      winograd_weight(torch::randn({16, 16, 3, 3}), x.sizes(), {1, 1});
  const auto convolve = [&](const torch::Tensor& images,
                            const std::optional<torch::Tensor>& bias,
                            const std::optional<torch::Tensor>& other) {
    winograd_conv2d(images, weight, bias, {1, 1}, other, true);
  };
  const torch::Tensor bias = torch::randn({16});
  EXPECT_NO_THROW(convolve(x, bias, x));
  EXPECT_THROW(convolve(x.narrow(1, 0, 3), bias, x), c10::ValueError);
  EXPECT_THROW(convolve(x, bias.narrow(0, 0, 8), x), c10::ValueError);
  EXPECT_THROW(convolve(x, bias, x.narrow(0, 0, 2)), c10::ValueError);
  EXPECT_THROW(convolve(x, bias, x.to(torch::kDouble)), c10::ValueError);
}

}  // namespace
}  // namespace tern::winograd_test
