#include "tern/learner/report/memory_meter.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::memory_meter_test {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

torch::Tensor megabytes(int64_t count) {
  return torch::empty({count * kMegabyte}, torch::kByte);
}

TEST(MemoryMeter, CountsLiveAndPeakBytes) {
  MemoryMeter meter(torch::kCPU);
  auto kept = megabytes(3);
  megabytes(2);
  megabytes(2);
  EXPECT_EQ(meter.live_bytes(), 3 * kMegabyte);
  EXPECT_EQ(meter.peak_bytes(), 5 * kMegabyte);
  kept.reset();
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 5 * kMegabyte);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), 0);
}

TEST(MemoryMeter, IgnoresBlocksAllocatedBefore) {
  auto before = megabytes(1);
  testing::internal::CaptureStderr();
  {
    MemoryMeter meter(torch::kCPU);
    before.reset();
    EXPECT_LT(meter.live_bytes(), kMegabyte);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(MemoryMeter, CountsBackward) {
  MemoryMeter meter(torch::kCPU);
  const auto w = torch::ones({kMegabyte / 4}).requires_grad_();
  const int64_t before = meter.live_bytes();
  (w * w).sum().backward();
  EXPECT_GE(meter.live_bytes() - before, kMegabyte);  // the gradient
}

// Compares the live bytes before backward. The peak also includes scratch
// memory of oneDNN, which is larger for bfloat16 on processors with matrix
// units.
TEST(MemoryMeter, BFloat16SavesAboutHalfOfTheActivationMemory) {
  const auto saved = [](bool bf16) {
    MemoryMeter meter(torch::kCPU);
    Learner learn(
        testing_support::point_data(
            4096,
            0,
            {.batch_size = 4096, .workers = 0}),
        testing_support::point_net(),
        testing_support::quiet());
    if (bf16) learn.to_bf16();
    int64_t before = 0, after = 0;
    LambdaCallbackOptions watch;
    watch.on_batch_begin = [&](Learner&) { before = meter.live_bytes(); };
    watch.on_loss_begin = [&](Learner&) { after = meter.live_bytes(); };
    learn.fit(1, {}, {std::make_shared<LambdaCallback>(watch)});
    return static_cast<double>(after - before);
  };
  const double fp32 = saved(false), bf16 = saved(true);
  EXPECT_GT(bf16, 0.4 * fp32);
  EXPECT_LT(bf16, 0.75 * fp32);
}

TEST(MemoryMeter, SupportsCpuAndCudaOnly) {
  expect_error<c10::ValueError>(
      [] { MemoryMeter meter(torch::kMeta); },
      {"meta", "CPU or CUDA"});
}

}  // namespace
}  // namespace tern::memory_meter_test
