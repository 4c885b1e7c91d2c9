#include "tern/kernels/depthwise_conv.h"

#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fma_loop.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::depthwise_conv_test {
namespace {

using Numbers = std::vector<int64_t>;

using DepthwiseConv = test::CpuKernel;

struct Case {
  Numbers images;  // [N, C, H, W]
  Numbers kernel = {3, 3}, stride = {1, 1}, padding = {1, 1};
  bool has_bias = true;
  const char* activation = "none";
};

/// Expects the result of LibTorch's convolution in double.
void expect_right(const Case& c) {
  const int64_t channels = c.images[1];
  const torch::Tensor x = torch::randn(c.images);
  const torch::Tensor w = torch::randn({channels, 1, c.kernel[0], c.kernel[1]});
  std::optional<torch::Tensor> bias;
  if (c.has_bias) bias = torch::randn({channels});
  const auto doubles = [](const torch::Tensor& t) { return t.to(at::kDouble); };
  torch::Tensor expected = at::conv2d(
      doubles(x),
      doubles(w),
      bias ? doubles(*bias) : torch::Tensor(),
      c.stride,
      c.padding,
      1,
      channels);
  const std::string name = c.activation;
  if (name == "relu") expected = expected.relu();
  if (name == "hardtanh") expected = expected.clamp(-0.5, 2);
  if (name == "hardsigmoid") expected = torch::hardsigmoid(expected);
  if (name == "hardswish") expected = torch::hardswish(expected);
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = depthwise_conv2d(
        x,
        depthwise_weight(w, bias),
        c.kernel,
        c.stride,
        c.padding,
        *ConvActivation::from(c.activation, -0.5, 2));
    EXPECT_EQ(y.sizes(), expected.sizes());
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    const double apart = (y - expected).abs().max().item<double>();
    EXPECT_LE(apart, 2e-6 * expected.abs().max().item<double>())
        << x.sizes() << w.sizes() << c.stride << c.padding;
  }
}

TEST_F(DepthwiseConv, EqualsTheConvolutionForAnySizeKernelStrideAndPadding) {
  for (const Numbers& images : std::vector<Numbers>{
           {1, 16, 7, 7},
           {1, 40, 14, 9},
           {2, 17, 12, 31},
           {1, 200, 14, 14},
           {3, 72, 6, 5},
           {1, 96, 40, 37}}) {
    for (const Numbers& kernel : std::vector<
             Numbers>{{3, 3}, {5, 5}, {1, 1}, {2, 2}, {5, 3}, {3, 5}, {4, 1}}) {
      for (const Numbers& stride :
           std::vector<Numbers>{{1, 1}, {2, 2}, {2, 1}, {3, 2}}) {
        for (const int64_t padding : {0, 1, 2}) {
          expect_right({images, kernel, stride, {padding, padding}});
        }
      }
    }
  }
}

TEST_F(DepthwiseConv, AcceptsWeightsThatAreNotContiguous) {
  const torch::Tensor w = torch::randn({24, 1, 5, 3}).transpose(2, 3);
  const torch::Tensor x = torch::randn({1, 24, 9, 9});
  EXPECT_TRUE(torch::allclose(
      depthwise_conv2d(x, depthwise_weight(w, {}), {3, 5}, {1, 1}, {1, 2}, {}),
      at::conv2d(x, w, {}, 1, {1, 2}, 1, 24),
      1e-4,
      1e-5));
}

TEST_F(DepthwiseConv, AppliesBiasAndActivation) {
  for (const bool has_bias : {false, true}) {
    for (const char* activation :
         {"none", "relu", "hardtanh", "hardsigmoid", "hardswish"}) {
      expect_right(
          {.images = {1, 48, 11, 13},
           .kernel = {5, 5},
           .padding = {2, 2},
           .has_bias = has_bias,
           .activation = activation});
    }
  }
}

TEST_F(DepthwiseConv, TheKernelMayBeLargerThanTheImage) {
  for (const Numbers& images :
       std::vector<Numbers>{{1, 32, 1, 1}, {1, 32, 2, 1}, {2, 40, 1, 3}}) {
    expect_right({.images = images, .kernel = {5, 5}, .padding = {2, 2}});
    expect_right({.images = images, .kernel = {3, 3}, .padding = {5, 4}});
  }
}

// Threads share rows, or channels if there are few rows.
TEST_F(DepthwiseConv, DoesNotDependOnTheNumberOfThreads) {
  for (const Numbers& images : std::vector<Numbers>{
           {1, 96, 40, 37},
           {1, 100, 1, 900},
           {2, 520, 1, 300},
           {3, 1000, 2, 50}}) {
    const torch::Tensor x = torch::randn(images);
    const torch::Tensor weight =
        depthwise_weight(torch::randn({images[1], 1, 1, 5}), {});
    const auto convolve = [&](int threads) {
      at::set_num_threads(threads);
      return depthwise_conv2d(x, weight, {1, 5}, {1, 1}, {0, 2}, {});
    };
    const torch::Tensor one = convolve(1);
    for (const int threads : {2, 3, 16, 64}) {
      const float apart = (convolve(threads) - one).abs().max().item<float>();
      EXPECT_LE(apart, 1e-6F * one.abs().max().item<float>())
          << images << " with " << threads << " threads";
    }
  }
}

TEST_F(DepthwiseConv, KeepsNaNWhereTheConvolutionHasIt) {
  torch::Tensor x = torch::randn({1, 40, 8, 8});
  x[0][33][6][5] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor w = torch::randn({40, 1, 3, 3});
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = depthwise_conv2d(
        x,
        depthwise_weight(w, {}),
        {3, 3},
        {1, 1},
        {1, 1},
        *ConvActivation::from("hardswish", 0, 0));
    EXPECT_TRUE(y.isnan().equal(at::conv2d(x, w, {}, 1, 1, 1, 40).isnan()));
  }
}

TEST_F(DepthwiseConv, AcceptsAnEmptyBatchAndOtherLayouts) {
  const torch::Tensor w = torch::randn({24, 1, 3, 3});
  const torch::Tensor weight = depthwise_weight(w, {});
  const auto convolve = [&](const torch::Tensor& x) {
    return depthwise_conv2d(x, weight, {3, 3}, {1, 1}, {1, 1}, {});
  };
  EXPECT_EQ(
      convolve(torch::empty({0, 24, 5, 5})).sizes(),
      (Numbers{0, 24, 5, 5}));
  const torch::Tensor x =
      torch::randn({2, 48, 6, 10}).narrow(1, 7, 24).slice(3, 0, 10, 2);
  EXPECT_TRUE(torch::allclose(
      convolve(x),
      at::conv2d(x, w, {}, 1, 1, 1, 24),
      1e-4,
      1e-5));
}

TEST_F(DepthwiseConv, PaysForOneImageAndSmallKernels) {
  EXPECT_EQ(
      depthwise_conv_pays({1, 96, 56, 56}, {96, 1, 3, 3}, {1, 1}),
      has_fma());
  EXPECT_FALSE(depthwise_conv_pays({16, 96, 56, 56}, {96, 1, 3, 3}, {1, 1}));
  EXPECT_FALSE(depthwise_conv_pays({1, 96, 56, 56}, {96, 1, 7, 7}, {1, 1}));
  EXPECT_FALSE(depthwise_conv_pays({1, 96, 56, 56}, {96, 1, 3, 3}, {2, 2}));
  EXPECT_FALSE(depthwise_conv_pays({1, 8, 56, 56}, {8, 1, 3, 3}, {1, 1}));
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(depthwise_conv_pays({1, 96, 56, 56}, {96, 1, 3, 3}, {1, 1}));
}

TEST_F(DepthwiseConv, RejectsInputsThatItWouldReadOutOfBounds) {
  const torch::Tensor x = torch::randn({1, 16, 5, 5});
  const torch::Tensor weight =
      depthwise_weight(torch::randn({16, 1, 3, 3}), {});
  const auto convolve = [&](const torch::Tensor& images,
                            const Numbers& kernel,
                            int64_t padding) {
    depthwise_conv2d(images, weight, kernel, {1, 1}, {padding, padding}, {});
  };
  EXPECT_NO_THROW(convolve(x, {3, 3}, 1));
  EXPECT_THROW(convolve(x.repeat({1, 2, 1, 1}), {3, 3}, 1), c10::ValueError);
  EXPECT_THROW(convolve(x.to(torch::kDouble), {3, 3}, 1), c10::ValueError);
  EXPECT_THROW(convolve(x, {5, 5}, 1), c10::ValueError);
  EXPECT_THROW(convolve(x.narrow(2, 0, 2), {3, 3}, 0), c10::ValueError);
  EXPECT_THROW(convolve(x.narrow(3, 0, 0), {3, 3}, 2), c10::ValueError);
  EXPECT_THROW(convolve(x, {3, 3}, -1), c10::ValueError);
  EXPECT_THROW(convolve(x, {-3, -3}, 1), c10::ValueError);
  const auto with = [&](const torch::Tensor& factors, const Numbers& stride) {
    depthwise_conv2d(x, factors, {3, 3}, stride, {1, 1}, {});
  };
  EXPECT_NO_THROW(with(weight, {1, 1}));
  EXPECT_THROW(with(weight, {1}), c10::ValueError);
  EXPECT_THROW(with(weight, {0, 1}), c10::ValueError);
  EXPECT_THROW(with(weight.to(torch::kDouble), {1, 1}), c10::ValueError);
}

}  // namespace
}  // namespace tern::depthwise_conv_test
