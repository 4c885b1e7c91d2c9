#include "tern/kernels/pointwise_conv.h"

#include <limits>
#include <vector>

#include <ATen/ops/conv2d.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fma_loop.h"

namespace tern::pointwise_conv_test {
namespace {

using Numbers = std::vector<int64_t>;

const std::vector<CpuIsa> kIsas = {
    CpuIsa::baseline,
    CpuIsa::avx2,
    CpuIsa::avx512};

class PointwiseConv : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }
  void TearDown() override { set_cpu_isa(best_cpu_isa()); }

  torch::NoGradGuard no_grad_;
};

/// Expects the result of LibTorch's convolution in double.
void expect_right(
    const Numbers& images,
    int64_t outputs,
    bool has_bias,
    bool has_gate,
    bool has_other,
    const char* activation) {
  const int64_t channels = images[1];
  const torch::Tensor x = torch::randn(images);
  const torch::Tensor w = torch::randn({outputs, channels, 1, 1});
  std::optional<torch::Tensor> bias, gate, other;
  if (has_bias) bias = torch::randn({outputs});
  if (has_gate) gate = torch::rand({1, channels, 1, 1});
  const auto doubles = [](const torch::Tensor& t) { return t.to(at::kDouble); };
  torch::Tensor expected = at::conv2d(
      gate ? doubles(x) * *gate : doubles(x),
      doubles(w),
      bias ? doubles(*bias) : torch::Tensor());
  if (has_other) {
    other = torch::randn(expected.sizes());
    expected += *other;
  }
  const std::string name = activation;
  if (name == "relu") expected = expected.relu();
  if (name == "swish") expected = torch::silu(expected);
  for (const CpuIsa isa : kIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = pointwise_conv2d(
        x,
        pointwise_weight(w, bias),
        outputs,
        gate,
        other,
        *ConvActivation::from(activation, 0, 0));
    EXPECT_EQ(y.sizes(), expected.sizes());
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    const double apart = (y - expected).abs().max().item<double>();
    EXPECT_LE(apart, 2e-6 * expected.abs().max().item<double>())
        << x.sizes() << " to " << outputs << " channels";
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
      expect_right(images, outputs, true, false, false, "none");
    }
  }
}

TEST_F(PointwiseConv, AppliesBiasGateSumAndActivation) {
  for (const bool has_bias : {false, true}) {
    for (const bool has_gate : {false, true}) {
      for (const bool has_other : {false, true}) {
        for (const char* activation : {"none", "relu", "swish"}) {
          for (const int64_t outputs : {24, 64}) {
            expect_right(
                {1, 40, 11, 13},
                outputs,
                has_bias,
                has_gate,
                has_other,
                activation);
          }
        }
      }
    }
  }
}

TEST_F(PointwiseConv, AcceptsAnEmptyBatchAndOtherLayouts) {
  const torch::Tensor w = torch::randn({20, 24, 1, 1});
  const torch::Tensor weight = pointwise_weight(w, {});
  const auto convolve = [&](const torch::Tensor& x) {
    return pointwise_conv2d(x, weight, 20, {}, {}, {});
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
  for (const CpuIsa isa : kIsas) {
    set_cpu_isa(isa);
    const torch::Tensor y = pointwise_conv2d(
        x,
        pointwise_weight(w, {}),
        40,
        {},
        {},
        *ConvActivation::from("relu", 0, 0));
    EXPECT_TRUE(y.isnan().equal(at::conv2d(x, w).isnan()));
  }
}

TEST_F(PointwiseConv, PaysForSmallLayers) {
  EXPECT_EQ(pointwise_conv_pays({1, 96, 56, 56}, {24, 96, 1, 1}), has_fma());
  EXPECT_FALSE(pointwise_conv_pays({16, 1024, 14, 14}, {256, 1024, 1, 1}));
  EXPECT_FALSE(pointwise_conv_pays({1, 16, 8, 8}, {16, 16, 3, 3}));
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(pointwise_conv_pays({1, 96, 56, 56}, {24, 96, 1, 1}));
}

TEST_F(PointwiseConv, RejectsInputsThatItWouldReadOutOfBounds) {
  const torch::Tensor x = torch::randn({1, 16, 5, 5});
  const torch::Tensor weight =
      pointwise_weight(torch::randn({16, 16, 1, 1}), {});
  const torch::Tensor gate = torch::rand({1, 16, 1, 1});
  const auto convolve = [&](const torch::Tensor& images,
                            const std::optional<torch::Tensor>& factor,
                            const std::optional<torch::Tensor>& other) {
    pointwise_conv2d(images, weight, 16, factor, other, {});
  };
  EXPECT_NO_THROW(convolve(x, gate, x));
  EXPECT_THROW(convolve(x.narrow(1, 0, 8), {}, {}), c10::ValueError);
  EXPECT_THROW(convolve(x.to(torch::kDouble), {}, {}), c10::ValueError);
  EXPECT_THROW(convolve(x, gate.narrow(1, 0, 8), {}), c10::ValueError);
  EXPECT_THROW(convolve(x.repeat({2, 1, 1, 1}), gate, {}), c10::ValueError);
  EXPECT_THROW(convolve(x, gate, x.narrow(2, 0, 4)), c10::ValueError);
  EXPECT_THROW(convolve(x, gate, x.to(torch::kDouble)), c10::ValueError);
  EXPECT_THROW(pointwise_conv2d(x, weight, 40, {}, {}, {}), c10::ValueError);
}

}  // namespace
}  // namespace tern::pointwise_conv_test
