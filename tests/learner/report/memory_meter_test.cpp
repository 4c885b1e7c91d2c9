#include "tern/learner/report/memory_meter.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::memory_meter_test {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

torch::Tensor megabytes(int64_t count) {
  return torch::empty({count * kMegabyte}, torch::kByte);
}

TEST(MemoryMeter, CountsWhatLivesAndWhatLivedAtOnce) {
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

TEST(MemoryMeter, SaysNothingOfBlocksFromBefore) {
  auto before = megabytes(1);
  testing::internal::CaptureStderr();
  {
    MemoryMeter meter(torch::kCPU);
    before.reset();
    EXPECT_LT(meter.live_bytes(), kMegabyte);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(MemoryMeter, CountsBackwardToo) {
  MemoryMeter meter(torch::kCPU);
  const auto w = torch::ones({kMegabyte / 4}).requires_grad_();
  const int64_t before = meter.live_bytes();
  (w * w).sum().backward();
  EXPECT_GE(meter.live_bytes() - before, kMegabyte);  // the gradient
}

TEST(MemoryMeter, ComparesPrecisions) {
  const auto peak = [](bool bf16) {
    MemoryMeter meter(torch::kCPU);
    Learner learn(
        testing_support::point_data(
            4096,
            0,
            {.batch_size = 4096, .workers = 0}),
        testing_support::point_net(),
        testing_support::quiet());
    if (bf16) learn.to_bf16();
    learn.fit(1);
    return meter.peak_bytes();
  };
  const auto fp32 = static_cast<double>(peak(false));
  const auto bf16 = static_cast<double>(peak(true));
  EXPECT_LT(bf16, 0.9 * fp32);
}

TEST(MemoryMeter, KnowsNoOtherDevices) {
  expect_error<c10::ValueError>(
      [] { MemoryMeter meter(torch::kMeta); },
      {"meta", "CPU or CUDA"});
}

}  // namespace
}  // namespace tern::memory_meter_test
