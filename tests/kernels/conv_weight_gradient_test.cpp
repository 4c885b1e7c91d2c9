#include "tern/kernels/conv_weight_gradient.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/convolution_backward.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/conv.h>
#include <torch/utils.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/depthwise_weight_gradient.h"
#include "tern/kernels/fast_conv_backward.h"
#include "tern/tests/kernels/cpu_kernel.h"
#include "tern/tests/support/op_calls.h"

namespace tern::conv_weight_gradient_test {
namespace {

using Numbers = std::vector<int64_t>;
using torch::Tensor;

struct Case {
  Numbers images;  // [N, C, H, W]
  int64_t outputs;
  Numbers kernel_size, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1;

  Numbers weight() const {
    return {outputs, images[1] / groups, kernel_size[0], kernel_size[1]};
  }
  ConvGeometry geometry() const {
    return {kernel_size, stride, padding, dilation};
  }
};

Tensor in_bfloat16(const Tensor& tensor) {
  return tensor.to(torch::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
}

/// Random images and a gradient in bfloat16, and the weight gradient in double.
struct Drawn {
  explicit Drawn(const Case& c)
      : images(in_bfloat16(torch::randn(c.images))),
        weight(torch::randn(c.weight(), torch::kDouble).requires_grad_()) {
    const Tensor result = torch::conv2d(
        images.to(torch::kDouble),
        weight,
        {},
        c.stride,
        c.padding,
        c.dilation,
        c.groups);
    gradient = in_bfloat16(torch::randn(result.sizes()));
    result.backward(gradient.to(torch::kDouble));
    expected = weight.grad();
  }

  Tensor images, weight, gradient, expected;
};

/// The kernels sum in fp32 and round once.
void expect_close(const Tensor& given, const Tensor& expected) {
  ASSERT_EQ(given.sizes(), expected.sizes());
  EXPECT_EQ(given.scalar_type(), torch::kBFloat16);
  const double largest = expected.abs().max().item<double>();
  const Tensor error = (given.to(torch::kDouble) - expected).abs();
  const Tensor allowed = expected.abs() * 0x1p-8 + 1e-5 * largest;
  EXPECT_TRUE((error <= allowed).all().item<bool>())
      << "off by " << error.max().item<double>() << ", largest " << largest;
}

class ConvWeightGradient : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    at::set_num_threads(GetParam());
    set_cpu_isa(best_cpu_isa());  // overrides TERN_CPU_ISA
  }
  void TearDown() override {
    at::set_num_threads(threads_);
    set_cpu_isa(best_cpu_isa());
  }

 private:
  int threads_ = at::get_num_threads();
};

INSTANTIATE_TEST_SUITE_P(Threads, ConvWeightGradient, testing::Values(1, 2, 3));

TEST_P(ConvWeightGradient, IsTheExactSumRoundedOnce) {
  if (!at::native::cpublas::could_pack(torch::kBFloat16)) {
    GTEST_SKIP() << "this processor has no AMX";
  }
  for (const Case& c : std::vector<Case>{
           {{2, 64, 9, 7}, 128, {3, 3}, {1, 1}, {1, 1}},
           {{3, 80, 8, 8}, 96, {1, 1}},
           {{2, 64, 9, 9}, 70, {3, 3}, {2, 2}, {1, 1}},
           {{1, 96, 11, 8}, 65, {5, 3}, {1, 2}, {2, 0}, {2, 1}},
           {{2, 512, 4, 4}, 512, {3, 3}, {1, 1}, {1, 1}},    // by outputs
           {{4, 64, 33, 33}, 512, {1, 1}},                   // several chunks
           {{1, 64, 1, 1}, 128, {3, 3}, {1, 1}, {1, 1}}}) {  // one pixel
    const Drawn drawn(c);
    EXPECT_TRUE(conv_weight_gradient_pays(drawn.images, drawn.gradient));
    expect_close(
        conv_weight_gradient(drawn.images, drawn.gradient, c.geometry()),
        drawn.expected);
  }
}

TEST_P(ConvWeightGradient, OfADepthwiseConvolutionIsExactOnAnyProcessor) {
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    for (const Case& c : std::vector<Case>{
             {{2, 32, 9, 7}, 32, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 32},
             {{3, 16, 8, 9}, 16, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 16},
             {{1, 48, 11, 8}, 48, {5, 4}, {1, 3}, {4, 0}, {2, 1}, 48},
             {{1, 16, 12, 12}, 16, {2, 1}, {5, 4}, {0, 0}, {1, 1}, 16},
             {{1, 16, 2, 2}, 16, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 16}}) {
      const Drawn drawn(c);
      EXPECT_TRUE(depthwise_weight_gradient_pays(
          drawn.images,
          drawn.gradient,
          c.kernel_size));
      expect_close(
          depthwise_weight_gradient(drawn.images, drawn.gradient, c.geometry()),
          drawn.expected);
    }
  }
}

/// Gradients of weight, bias and images in a backward pass.
std::vector<Tensor>
gradients(const Case& c, const Drawn& drawn, bool wants_images = true) {
  const Tensor images = drawn.images.clone().requires_grad_(wants_images);
  const Tensor weight = in_bfloat16(drawn.weight.detach()).requires_grad_();
  const Tensor bias =
      torch::zeros({c.outputs}, torch::kBFloat16).requires_grad_();
  torch::conv2d(images, weight, bias, c.stride, c.padding, c.dilation, c.groups)
      .backward(drawn.gradient);
  return {weight.grad(), bias.grad(), images.grad()};
}

// The kernel that is expected to compute a gradient.
struct Taken {
  Case of;
  const char* kernel;
  bool needs_amx = false;
};

TEST_P(ConvWeightGradient, ReplacesOneDnnInBackwardOnly) {
  const bool has_amx = at::native::cpublas::could_pack(torch::kBFloat16);
  for (const Taken& taken : std::vector<Taken>{
           {{{2, 64, 9, 9}, 128, {3, 3}, {1, 1}, {1, 1}},
            "tern::conv_weight_gradient",
            true},
           // A single number for both dimensions, as LibTorch's functions
           // accept.
           {{{2, 64, 9, 9}, 128, {3, 3}, {2}, {1}, {1}},
            "tern::conv_weight_gradient",
            true},
           {{{2, 32, 9, 9}, 32, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 32},
            "tern::depthwise_weight_gradient"},
           {{{2, 32, 9, 9}, 32, {3, 3}, {2}, {1}, {1}, 32},
            "tern::depthwise_weight_gradient"},
           {{{2, 3, 17, 16}, 24, {4, 4}, {4, 4}},  // and a remainder
            "tern::patch_weight_gradient",
            true},
           {{{2, 3, 17, 16}, 24, {4, 4}, {4}, {0}, {1}},
            "tern::patch_weight_gradient",
            true}}) {
    const Case& c = taken.of;
    const Drawn drawn(c);
    const std::vector<Tensor> before = gradients(c, drawn);
    for (const bool wants_images : {true, false}) {
      const test::OpCalls calls(taken.kernel);
      std::vector<Tensor> fast;
      {
        const FastConvBackward guard;
        { const FastConvBackward inner; }
        fast = gradients(c, drawn, wants_images);
      }
      if (calls.count() == 0) {
        EXPECT_TRUE(taken.needs_amx && !has_amx) << taken.kernel;
        EXPECT_TRUE(torch::equal(fast[0], before[0]));
        continue;
      }
      expect_close(fast[0], drawn.expected);
      expect_close(fast[1], drawn.gradient.to(torch::kDouble).sum({0, 2, 3}));
      ASSERT_EQ(fast[2].defined(), wants_images);
      if (wants_images) EXPECT_TRUE(torch::equal(fast[2], before[2]));
    }
    const test::OpCalls none(taken.kernel);
    EXPECT_TRUE(torch::equal(gradients(c, drawn)[0], before[0]));
    EXPECT_EQ(none.count(), 0);
  }
}

TEST_P(ConvWeightGradient, LeavesOtherConvolutionsUnchanged) {
  const auto gradient_of = [](const Tensor& x, bool transposed) {
    torch::manual_seed(5);
    const Tensor w =
        torch::randn({64, 64, 3, 3}).to(x.scalar_type()).requires_grad_();
    const Tensor y =
        transposed ? torch::conv_transpose2d(x, w) : torch::conv2d(x, w);
    y.sum().backward();
    return w.grad();
  };
  const Tensor x = torch::randn({2, 64, 6, 6});
  for (const Case& c : std::vector<Case>{
           {{2, 3, 8, 8}, 8, {3, 3}, {1, 1}, {1, 1}},
           {{2, 32, 8, 8}, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4}}) {
    const Drawn drawn(c);
    const Tensor expected = gradients(c, drawn)[0];
    const FastConvBackward guard;
    EXPECT_TRUE(torch::equal(gradients(c, drawn)[0], expected));
  }
  for (const auto& [images, transposed] : std::vector<std::pair<Tensor, bool>>{
           {x, false},
           {in_bfloat16(x), true},
           {x.to(torch::kBFloat16), false}}) {
    const Tensor expected = gradient_of(images, transposed);
    const FastConvBackward guard;
    EXPECT_TRUE(torch::equal(gradient_of(images, transposed), expected));
  }
}

TEST_P(ConvWeightGradient, RejectsInvalidInputs) {
  const Tensor x = torch::zeros({2, 20, 6, 6}, torch::kBFloat16);
  const Numbers three = {3, 3}, one = {1, 1}, none = {0, 0};
  const ConvGeometry geometry{three, one, none, one};
  EXPECT_THROW(conv_weight_gradient(x, x[0], geometry), c10::ValueError);
  EXPECT_THROW(
      conv_weight_gradient(x.to(torch::kFloat), x, geometry),
      c10::ValueError);
  EXPECT_THROW(depthwise_weight_gradient(x, x, geometry), c10::ValueError);
}

}  // namespace
}  // namespace tern::conv_weight_gradient_test
