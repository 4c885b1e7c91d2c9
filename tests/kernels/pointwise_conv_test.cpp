#include "tern/kernels/pointwise_conv.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fma_loop.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::pointwise_conv_test {
namespace {

using Numbers = std::vector<int64_t>;

using PointwiseConv = test::CpuKernel;

struct Case {
  Numbers images;  // [N, C, H, W]
  int64_t outputs;
  Numbers stride = {1, 1};
  bool has_bias = true;
  int64_t gates = 0;  // 0, 1 or N
  bool has_other = false;
  const char* activation = "none";
};

/// Expects the result of LibTorch's convolution in double.
void expect_right(const Case& c) {
  const int64_t channels = c.images[1];
  const torch::Tensor x = torch::randn(c.images);
  const torch::Tensor w = torch::randn({c.outputs, channels, 1, 1});
  std::optional<torch::Tensor> bias, gate, other;
  if (c.has_bias) bias = torch::randn({c.outputs});
  if (c.gates > 0) gate = torch::rand({c.gates, channels, 1, 1});
  const auto doubles = [](const torch::Tensor& t) { return t.to(at::kDouble); };
  torch::Tensor expected = at::conv2d(
      gate ? doubles(x) * *gate : doubles(x),
      doubles(w),
      bias ? doubles(*bias) : torch::Tensor(),
      c.stride);
  if (c.has_other) {
    other = torch::randn(expected.sizes());
    expected += *other;
  }
  const std::string name = c.activation;
  if (name == "relu") expected = expected.relu();
  if (name == "hardtanh") expected = expected.clamp(-0.5, 2);
  if (name == "sigmoid") expected = expected.sigmoid();
  if (name == "swish") expected = torch::silu(expected);
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = pointwise_conv2d(
        x,
        pointwise_weight(w, bias),
        c.outputs,
        c.stride,
        gate,
        other,
        *ConvActivation::from(c.activation, -0.5, 2));
    EXPECT_EQ(y.sizes(), expected.sizes());
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    const double apart = (y - expected).abs().max().item<double>();
    EXPECT_LE(apart, 2e-6 * expected.abs().max().item<double>())
        << x.sizes() << " to " << c.outputs << " channels, stride " << c.stride;
  }
}

TEST_F(PointwiseConv, EqualsTheConvolutionForAnySize) {
  for (const Numbers& images : std::vector<Numbers>{
           {1, 1, 1, 1},
           {1, 3, 1, 13},
           {1, 16, 5, 5},
           {1, 24, 7, 7},
           {3, 40, 9, 4},
           {1, 200, 14, 14},
           {2, 33, 31, 29},
           {1, 64, 56, 56}}) {
    for (const int64_t outputs : {1, 8, 16, 17, 32, 33, 48, 80, 100}) {
      expect_right({.images = images, .outputs = outputs});
    }
  }
}

TEST_F(PointwiseConv, EqualsTheConvolutionForAnyStride) {
  for (const Numbers& images :
       std::vector<Numbers>{{1, 16, 1, 1}, {1, 40, 14, 13}, {3, 24, 7, 10}}) {
    for (const Numbers& stride :
         std::vector<Numbers>{{2, 2}, {1, 2}, {3, 1}, {20, 20}}) {
      expect_right({.images = images, .outputs = 40, .stride = stride});
    }
  }
}

// Blocks of more rows are multiplied at once.
TEST_F(PointwiseConv, EqualsTheConvolutionOfManyChannels) {
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const int64_t stride : {1, 2}) {
      for (const int64_t gates : {0, 2}) {
        expect_right(
            {.images = {2, 600, 14, 15},
             .outputs = 72,
             .stride = {stride, stride},
             .gates = gates,
             .has_other = gates > 0,
             .activation = "relu"});
      }
    }
  }
}

TEST_F(PointwiseConv, AppliesBiasGateSumAndActivation) {
  for (const bool has_bias : {false, true}) {
    for (const int64_t gates : {0, 1, 3}) {
      for (const bool has_other : {false, true}) {
        for (const char* activation :
             {"none", "relu", "hardtanh", "sigmoid", "swish"}) {
          for (const int64_t outputs : {24, 64}) {
            for (const int64_t stride : {1, 2}) {
              expect_right(
                  {.images = {std::max<int64_t>(gates, 1), 40, 11, 13},
                   .outputs = outputs,
                   .stride = {stride, stride},
                   .has_bias = has_bias,
                   .gates = gates,
                   .has_other = has_other,
                   .activation = activation});
            }
          }
        }
      }
    }
  }
  expect_right({.images = {4, 40, 11, 13}, .outputs = 24, .gates = 1});
}

// Threads share rows, the weight's panels, or both.
TEST_F(PointwiseConv, DoesNotDependOnTheNumberOfThreads) {
  for (const Numbers& images : std::vector<Numbers>{
           {1, 96, 56, 56},
           {1, 1024, 14, 14},
           {1, 600, 1, 1},
           {5, 600, 2, 2},
           {3, 200, 9, 9}}) {
    for (const int64_t outputs : {24, 600}) {
      const torch::Tensor x = torch::randn(images);
      const torch::Tensor gate = torch::rand({images[0], images[1], 1, 1});
      const torch::Tensor weight =
          pointwise_weight(torch::randn({outputs, images[1], 1, 1}), {});
      const auto convolve = [&](int threads) {
        at::set_num_threads(threads);
        return torch::stack(
            {pointwise_conv2d(x, weight, outputs, {1, 1}, {}, {}, {}),
             pointwise_conv2d(x, weight, outputs, {1, 1}, gate, {}, {})});
      };
      const torch::Tensor one = convolve(1);
      for (const int threads : {2, 3, 16, 64}) {
        EXPECT_TRUE(torch::allclose(convolve(threads), one, 1e-4, 1e-4))
            << images << " with " << threads << " threads";
      }
    }
  }
}

TEST_F(PointwiseConv, AcceptsAnEmptyBatchAndOtherLayouts) {
  const torch::Tensor w = torch::randn({20, 24, 1, 1});
  const torch::Tensor weight = pointwise_weight(w, {});
  const auto convolve = [&](const torch::Tensor& x) {
    return pointwise_conv2d(x, weight, 20, {1, 1}, {}, {}, {});
  };
  EXPECT_EQ(
      convolve(torch::empty({0, 24, 5, 5})).sizes(),
      (Numbers{0, 20, 5, 5}));
  const torch::Tensor wide = torch::randn({2, 48, 6, 10});
  const torch::Tensor x = wide.narrow(1, 7, 24).slice(3, 0, 10, 2);
  EXPECT_TRUE(torch::allclose(convolve(x), at::conv2d(x, w), 1e-4, 1e-5));
}

TEST_F(PointwiseConv, KeepsNaNWhereTheConvolutionHasIt) {
  torch::Tensor x = torch::randn({1, 16, 8, 8});
  x[0][3][6][5] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor w = torch::randn({40, 16, 1, 1});
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = pointwise_conv2d(
        x,
        pointwise_weight(w, {}),
        40,
        {1, 1},
        {},
        {},
        *ConvActivation::from("relu", 0, 0));
    EXPECT_TRUE(y.isnan().equal(at::conv2d(x, w).isnan()));
  }
}

TEST_F(PointwiseConv, PaysForSmallLayers) {
  const auto pays = [](const Numbers& images, const Numbers& weight) {
    return pointwise_conv_pays(images, weight, {1, 1});
  };
  EXPECT_EQ(pays({1, 96, 56, 56}, {24, 96, 1, 1}), has_fma());
  EXPECT_FALSE(pays({16, 1024, 14, 14}, {256, 1024, 1, 1}));
  EXPECT_FALSE(pays({1, 16, 8, 8}, {16, 16, 3, 3}));
  // A stride leaves fewer pixels.
  EXPECT_FALSE(pays({8, 256, 56, 56}, {24, 256, 1, 1}));
  EXPECT_EQ(
      pointwise_conv_pays({8, 256, 56, 56}, {24, 256, 1, 1}, {4, 2}),
      has_fma());
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(pays({1, 96, 56, 56}, {24, 96, 1, 1}));
}

TEST_F(PointwiseConv, RejectsInputsThatItWouldReadOutOfBounds) {
  const torch::Tensor x = torch::randn({1, 16, 5, 5});
  const torch::Tensor weight =
      pointwise_weight(torch::randn({16, 16, 1, 1}), {});
  const torch::Tensor gate = torch::rand({1, 16, 1, 1});
  const auto convolve = [&](const torch::Tensor& images,
                            const std::optional<torch::Tensor>& factor,
                            const std::optional<torch::Tensor>& other) {
    pointwise_conv2d(images, weight, 16, {1, 1}, factor, other, {});
  };
  EXPECT_NO_THROW(convolve(x, gate, x));
  EXPECT_THROW(convolve(x.narrow(1, 0, 8), {}, {}), c10::ValueError);
  EXPECT_THROW(convolve(x.to(torch::kDouble), {}, {}), c10::ValueError);
  EXPECT_THROW(convolve(x, gate.narrow(1, 0, 8), {}), c10::ValueError);
  EXPECT_THROW(
      convolve(x.repeat({3, 1, 1, 1}), gate.repeat({2, 1, 1, 1}), {}),
      c10::ValueError);
  EXPECT_THROW(convolve(x, gate.view({1, 1, 16, 1}), {}), c10::ValueError);
  EXPECT_THROW(convolve(x.narrow(2, 0, 0), {}, {}), c10::ValueError);
  EXPECT_THROW(convolve(x, gate, x.narrow(2, 0, 4)), c10::ValueError);
  EXPECT_THROW(convolve(x, gate, x.to(torch::kDouble)), c10::ValueError);
  const auto with = [&](const torch::Tensor& factors,
                        int64_t outputs,
                        const Numbers& stride) {
    pointwise_conv2d(x, factors, outputs, stride, {}, {}, {});
  };
  EXPECT_NO_THROW(with(weight, 16, {1, 1}));
  EXPECT_THROW(with(weight, 40, {1, 1}), c10::ValueError);
  EXPECT_THROW(with(weight, 16, {1}), c10::ValueError);
  EXPECT_THROW(with(weight, 16, {1, 0}), c10::ValueError);
  EXPECT_THROW(with(weight.to(torch::kHalf), 16, {1, 1}), c10::ValueError);
  EXPECT_THROW(with(weight.transpose(1, 2), 16, {1, 1}), c10::ValueError);
}

}  // namespace
}  // namespace tern::pointwise_conv_test
