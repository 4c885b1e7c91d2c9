#include <limits>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/data/support/memory.h"
#include "tern/kernels/optim/unscale_and_check.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::unscale_and_check_cuda_test {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

class UnscaleAndCheckCudaTest : public GpuTest {};

torch::Tensor on_device(float value) {
  return torch::tensor(value, torch::kCUDA);
}

TEST_F(UnscaleAndCheckCudaTest, EqualsCpuBitForBit) {
  std::vector<torch::Tensor> cpu, cuda;
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    for (const int64_t size : {1, 3, 4, 0, 1000, 65535, 65536, 65537}) {
      cpu.push_back((torch::randn({size}) * 100).to(type));
      cuda.push_back(cpu.back().to(torch::kCUDA));
    }
  }
  auto found = on_device(0);
  unscale_and_check_(cpu, torch::tensor(0.3f), torch::zeros({}));
  unscale_and_check_(cuda, on_device(0.3f), found);
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_TRUE(bit_equal(cuda[i], cpu[i])) << "tensor " << i;
  }
  EXPECT_EQ(found.item<float>(), 0);
}

TEST_F(UnscaleAndCheckCudaTest, FindsEveryNonFiniteValueAtEveryPlace) {
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    for (const float value : {kInf, -kInf, kNaN}) {
      for (const int64_t place : {0, 1, 16383, 16384, 70000, 70001}) {
        auto grad =
            torch::ones({70002}, torch::dtype(type).device(torch::kCUDA));
        grad[place] = value;
        auto checked = on_device(0), unscaled = on_device(0);
        check_finite({grad}, checked);
        unscale_and_check_({grad}, on_device(0.5f), unscaled);
        EXPECT_EQ(checked.item<float>(), 1);
        EXPECT_EQ(unscaled.item<float>(), 1);
      }
    }
  }
}

TEST_F(UnscaleAndCheckCudaTest, HandlesViewsAndLongLists) {
  std::vector<torch::Tensor> grads;
  for (int i = 0; i < 2000; ++i) {
    grads.push_back(torch::full({1 + i % 9}, 4.0f, torch::kCUDA));
  }
  grads.push_back(torch::full({20, 20}, 4.0f, torch::kCUDA).slice(1, 1, 20, 2));
  grads.push_back(torch::full({20, 20}, 4.0f, torch::kCUDA).t());
  grads.push_back(torch::full({1001}, 4.0f, torch::kCUDA).narrow(0, 1, 1000));
  auto found = on_device(0);
  unscale_and_check_(grads, on_device(0.25f), found);
  for (const auto& grad : grads) {
    EXPECT_TRUE(all_close(grad, torch::ones_like(grad)));
  }
  EXPECT_EQ(found.item<float>(), 0);
  // The last dense gradient, and each of the views.
  for (size_t i = 1999; i < grads.size(); ++i) {
    const torch::Tensor whole = grads[i].clone();
    grads[i].select(0, -1).fill_(kNaN);
    auto found_there = on_device(0);
    check_finite(grads, found_there);
    EXPECT_EQ(found_there.item<float>(), 1) << i;
    auto found_unscaling = on_device(0);
    unscale_and_check_(grads, on_device(1), found_unscaling);
    EXPECT_EQ(found_unscaling.item<float>(), 1) << i;
    grads[i].copy_(whole);
  }
  check_finite(grads, found);
  EXPECT_EQ(found.item<float>(), 0);
}

TEST_F(UnscaleAndCheckCudaTest, AGradientMayHaveMoreThan2To31Elements) {
  const int64_t size = (int64_t{1} << 31) + 5;
  if (available_memory(torch::kCUDA) < 3 * size) {
    GTEST_SKIP() << "needs 6 GB of the GPU's memory";
  }
  const auto grad =
      torch::ones({size}, torch::dtype(torch::kHalf).device(torch::kCUDA));
  auto found = on_device(0);
  unscale_and_check_({grad}, on_device(0.5f), found);
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_EQ(grad.min().item<float>(), 0.5f);
  EXPECT_EQ(grad.max().item<float>(), 0.5f);
  grad[size - 1] = kInf;
  check_finite({grad}, found);
  EXPECT_EQ(found.item<float>(), 1);
}

// A stream other than the default one writes the gradients late. On any other
// stream the kernel would read them too early.
TEST_F(UnscaleAndCheckCudaTest, RunsOnTheCurrentStream) {
  const c10::impl::VirtualGuardImpl cuda(torch::kCUDA);
  const c10::Device device = cuda.getDevice();
  const c10::Stream side = cuda.getStreamFromGlobalPool(device);
  const auto grad =
      torch::ones({1 << 22}, torch::dtype(torch::kFloat).device(device));
  auto found = torch::zeros({}, device);
  const auto big = torch::randn({6144, 6144}, device);
  torch::cuda::synchronize();
  {
    const c10::StreamGuard guard(side);
    torch::Tensor slow = big;
    for (int i = 0; i < 20; ++i) slow = torch::mm(big, slow).mul_(1e-2);
    grad.copy_((slow.flatten()[0] * 0).add(2).expand_as(grad));
    unscale_and_check_({grad}, torch::full({}, 0.5f, device), found);
  }
  c10::Event done(torch::kCUDA);
  done.record(side);
  done.block(cuda.getStream(device));
  EXPECT_TRUE(grad.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace tern::test::unscale_and_check_cuda_test
