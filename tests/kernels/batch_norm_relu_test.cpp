#include "tern/kernels/batch_norm_relu.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/utils.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::batch_norm_relu_test {
namespace {

using torch::Tensor;

constexpr double kMomentum = 0.1, kEps = 1e-5;

/// Inputs and outputs of a pass. All have one dtype, except BatchNorm's
/// tensors.
struct Pass {
  Pass(
      const Tensor& given,
      const Tensor& added,
      torch::ScalarType type,
      torch::ScalarType norm_type)
      : images(leaf(given, type)),
        other(added.defined() ? leaf(added, type) : added) {
    const int64_t channels = given.size(1);
    const auto options = torch::dtype(norm_type);
    weight = torch::linspace(-0.5, 2, channels, options).requires_grad_();
    bias = torch::linspace(-1, 1, channels, options).requires_grad_();
    running_mean = torch::linspace(0, 3, channels, options);
    running_var = torch::linspace(1, 2, channels, options);
  }

  static Tensor leaf(const Tensor& tensor, torch::ScalarType type) {
    return tensor.to(type)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .detach()
        .requires_grad_();
  }

  BatchNormTensors norm() const {
    return {weight, bias, running_mean, running_var, kMomentum, kEps};
  }

  Tensor fused(bool relu) {
    return batch_norm_relu(images, other, norm(), relu);
  }

  Tensor by_operations(bool relu) {
    Tensor y = torch::batch_norm(
        images,
        weight,
        bias,
        running_mean,
        running_var,
        /*training=*/true,
        kMomentum,
        kEps,
        /*cudnn_enabled=*/false);
    if (other.defined()) y = y + other;
    return relu ? y.relu() : y;
  }

  std::vector<Tensor> gradients() const {
    std::vector<Tensor> all = {images.grad(), weight.grad(), bias.grad()};
    if (other.defined()) all.push_back(other.grad());
    return all;
  }

  Tensor images, other, weight, bias, running_mean, running_var;
};

void expect_close(const Tensor& given, const Tensor& expected, double error) {
  ASSERT_EQ(given.sizes(), expected.sizes());
  const double largest = expected.abs().max().item<double>();
  const double off =
      (given.to(torch::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(off, error * largest);
}

class BatchNormRelu : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(11); }
  void TearDown() override {
    at::set_num_threads(threads_);
    set_cpu_isa(best_cpu_isa());
  }

  /// Expects the results of LibTorch's operations in double.
  static void expect_right(
      const Tensor& images,
      const Tensor& other,
      torch::ScalarType type,
      bool relu,
      double error) {
    // Both passes get the same rounded inputs.
    Pass pass(images, other, type, torch::kFloat);
    const auto added = pass.other.defined()
                           ? pass.other.detach().to(torch::kDouble)
                           : Tensor();
    Pass exact(
        pass.images.detach().to(torch::kDouble),
        added,
        torch::kDouble,
        torch::kDouble);
    ASSERT_TRUE(fits_batch_norm_relu(pass.images, pass.other, pass.norm()));
    const Tensor y = pass.fused(relu);
    const Tensor expected = exact.by_operations(relu);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    expect_close(y.detach(), expected.detach(), error);
    expect_close(pass.running_mean, exact.running_mean, 1e-5);
    expect_close(pass.running_var, exact.running_var, 1e-5);
    const Tensor gradient = torch::randn(images.sizes()).to(type);
    y.backward(gradient);
    // The rounded result decides which gradients ReLU lets through.
    const Tensor through = relu ? gradient.to(torch::kDouble) * (y > 0)
                                : gradient.to(torch::kDouble);
    exact.by_operations(/*relu=*/false).backward(through);
    const auto ours = pass.gradients(), theirs = exact.gradients();
    for (size_t i = 0; i < ours.size(); ++i) {
      expect_close(ours[i], theirs[i], error);
    }
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(BatchNormRelu, EqualsSeparateOperations) {
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const CpuIsa isa : test::kCpuIsas) {
      set_cpu_isa(isa);
      for (const auto& sizes : std::vector<std::vector<int64_t>>{
               {2, 16, 3, 5},
               {1, 48, 40, 33},
               {7, 32, 1, 1},
               {2, 1040, 9, 4}}) {
        for (const bool relu : {true, false}) {
          const Tensor x = torch::randn(sizes) * 3 + 2;
          expect_right(x, {}, torch::kFloat, relu, 1e-5);
          expect_right(x, torch::randn(sizes), torch::kFloat, relu, 1e-5);
          expect_right(x, torch::randn(sizes), torch::kBFloat16, relu, 6e-3);
        }
      }
    }
  }
}

TEST_F(BatchNormRelu, ComputesTheVarianceOfNumbersFarFromZero) {
  const Tensor x = torch::randn({4, 16, 50, 50}) * 0.05 + 1000;
  Pass pass(x, {}, torch::kFloat, torch::kFloat);
  const Tensor exact = pass.images.detach().to(torch::kDouble);
  pass.running_var.zero_();
  pass.fused(/*relu=*/false);
  expect_close(
      pass.running_var,
      exact.transpose(0, 1).flatten(1).var(1) * kMomentum,
      1e-4);
}

TEST_F(BatchNormRelu, PropagatesNaN) {
  Tensor x = torch::randn({2, 16, 4, 4});
  x[1][3][2][2] = std::nan("");
  Pass pass(x, {}, torch::kFloat, torch::kFloat);
  const Tensor y = pass.fused(/*relu=*/true);
  EXPECT_TRUE(y.select(1, 3).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 4).isnan().any().item<bool>());
  y.sum().backward();
  EXPECT_TRUE(pass.images.grad().select(1, 3).isnan().all().item<bool>());
}

TEST_F(BatchNormRelu, HasSecondDerivatives) {
  const Tensor x = torch::randn({3, 16, 4, 5});
  const Tensor other = torch::randn({3, 16, 4, 5});
  const auto penalty = [&](Pass& pass, const Tensor& y) {
    const Tensor first = torch::autograd::grad(
        {y.square().sum()},
        {pass.images},
        {},
        true,
        /*create_graph=*/true)[0];
    first.square().sum().backward();
    return pass.gradients();
  };
  Pass fused(x, other, torch::kFloat, torch::kFloat);
  Pass separate(x, other, torch::kFloat, torch::kFloat);
  const auto ours = penalty(fused, fused.fused(/*relu=*/true));
  const auto theirs = penalty(separate, separate.by_operations(/*relu=*/true));
  for (size_t i = 0; i < ours.size(); ++i) {
    expect_close(ours[i], theirs[i].to(torch::kDouble), 1e-4);
  }
}

TEST_F(BatchNormRelu, KeepsTheSavedTensorsOfAnEarlierPassValid) {
  const Tensor x = torch::randn({3, 16, 4, 5});
  for (const bool training : {true, false}) {
    Pass pass(x, {}, torch::kFloat, torch::kFloat);
    const Tensor earlier = torch::batch_norm(
        pass.images,
        pass.weight,
        pass.bias,
        pass.running_mean,
        pass.running_var,
        training,
        kMomentum,
        kEps,
        /*cudnn_enabled=*/false);
    (earlier.sum() + pass.fused(/*relu=*/true).sum()).backward();
    EXPECT_TRUE(pass.images.grad().defined());
  }
}

TEST_F(BatchNormRelu, FitsSupportedInputsOnly) {
  const Tensor x = torch::randn({2, 16, 4, 4});
  const Pass pass(x, {}, torch::kFloat, torch::kFloat);
  EXPECT_TRUE(fits_batch_norm_relu(pass.images, {}, pass.norm()));
  for (const Tensor& images : std::vector<Tensor>{
           x,                             // not channels-last
           pass.images.to(torch::kHalf),  // dtype differs
           torch::randn({2, 16, 4}),      // three dimensions
           torch::randn({1, 1, 1, 16}).permute({0, 3, 1, 2})}) {  // one pixel
    EXPECT_FALSE(fits_batch_norm_relu(images, {}, pass.norm()));
  }
  EXPECT_FALSE(fits_batch_norm_relu(pass.images, x[0], pass.norm()));
  EXPECT_FALSE(fits_batch_norm_relu(
      pass.images,
      pass.images.to(torch::kBFloat16),
      pass.norm()));
  BatchNormTensors norm = pass.norm();
  norm.weight = torch::Tensor();
  EXPECT_FALSE(fits_batch_norm_relu(pass.images, {}, norm));
  const Tensor few = Pass::leaf(torch::randn({2, 12, 4, 4}), torch::kFloat);
  const Pass of_few(few, {}, torch::kFloat, torch::kFloat);
  EXPECT_FALSE(fits_batch_norm_relu(few, {}, of_few.norm()));
}

TEST_F(BatchNormRelu, LeavesOperationsSeparateForAuditsAndTracing) {
  const Tensor x = torch::randn({2, 16, 4, 4});
  const Pass pass(x, {}, torch::kFloat, torch::kFloat);
  {
    const c10::impl::IncludeDispatchKeyGuard audit(
        c10::DispatchKey::TESTING_ONLY_GenericMode);
    EXPECT_FALSE(fits_batch_norm_relu(pass.images, {}, pass.norm()));
  }
  torch::jit::tracer::setTracingState(
      std::make_shared<torch::jit::tracer::TracingState>());
  EXPECT_FALSE(fits_batch_norm_relu(pass.images, {}, pass.norm()));
  torch::jit::tracer::setTracingState(nullptr);
  EXPECT_TRUE(fits_batch_norm_relu(pass.images, {}, pass.norm()));
}

}  // namespace
}  // namespace tern::batch_norm_relu_test
