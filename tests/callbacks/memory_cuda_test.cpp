#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/max_batch_size.h"
#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/support/memory.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tiny.h"

namespace tern::memory_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const torch::Device kDevice = torch::kCUDA;
constexpr int64_t kMiB = 1 << 20;

class MemoryCudaTest : public GpuTest {};

DataBunch data_on_device(int64_t samples = 256) {
  DataBunch data = point_data(samples);
  data.device = kDevice;
  return data;
}

// Must be the first test, so that it runs before CUDA is initialized.
TEST_F(MemoryCudaTest, AvailableMemoryIsReportedBeforeTheDeviceIsUsed) {
  const int64_t available = available_memory(kDevice);
  EXPECT_GT(available, kMiB);
  EXPECT_LT(available, int64_t{1} << 42);
}

TEST_F(MemoryCudaTest, AMeterCountsLiveAndPeakBytes) {
  MemoryMeter meter(kDevice);
  const int64_t before = meter.live_bytes();
  {
    const auto big = torch::empty({64 * kMiB}, torch::kByte).to(kDevice);
    EXPECT_EQ(meter.live_bytes() - before, 64 * kMiB);
  }
  EXPECT_EQ(meter.live_bytes(), before);
  EXPECT_EQ(meter.peak_bytes() - before, 64 * kMiB);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), before);
}

TEST_F(MemoryCudaTest, HalfPrecisionSavesMemory) {
  const auto peak = [](void (*set_up)(Learner&)) {
    torch::nn::Sequential net;
    for (const int64_t inputs : {2, 256, 256}) {
      net->push_back(torch::nn::Linear(inputs, 256));
      net->push_back(torch::nn::ReLU());
    }
    net->push_back(torch::nn::Linear(256, 2));
    DataBunch data =
        point_data(1 << 15, 0, {.batch_size = 1 << 14, .workers = 0});
    data.device = kDevice;
    Learner learn(data, net, quiet());
    set_up(learn);
    // The first fit allocates cuBLAS's workspaces of tens of MB, which stay.
    learn.fit(1);
    const MemoryMeter meter(kDevice);
    const int64_t before = meter.live_bytes();
    learn.fit(1);
    return static_cast<double>(meter.peak_bytes() - before);
  };
  const double fp32 = peak([](Learner&) {});
  EXPECT_LT(
      peak([](Learner& l) { l.to_fp16({.force_fp16 = true}); }),
      0.7 * fp32);
  EXPECT_LT(peak([](Learner& l) { l.to_amp(); }), 0.9 * fp32);
}

// Allocates more than any device has while `is_hungry`.
struct HungryImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_hungry) torch::empty({int64_t{1} << 50}, x.options());
    return x;
  }
  bool is_hungry = true;
};
TORCH_MODULE(Hungry);

TEST_F(MemoryCudaTest, OutOfMemoryIsAClearErrorAndTheLearnerStaysUsable) {
  Hungry hungry;
  auto net = point_net();
  net->push_back(hungry);
  Learner learn(data_on_device(), net, quiet());
  learn.to_fp16({.force_fp16 = true});
  expect_error<c10::OutOfMemoryError>(
      [&] { learn.fit(1); },
      {"in the forward pass of a batch of 32 samples",
       "are free",
       "max_batch_size(learn)"});
  hungry->is_hungry = false;
  learn.fit(2, 1e-2);
  EXPECT_LT(learn.validate().loss, 0.7);
}

// Each sample takes 16 MiB in each of a few tensors.
TEST_F(MemoryCudaTest, TheLargestBatchIsFoundWhereTheDeviceRunsOutOfMemory) {
  static constexpr int64_t kWidth = 4 * kMiB;
  const auto wide = [] {
    return torch::nn::Sequential(
        torch::nn::Linear(2, kWidth),
        torch::nn::ReLU(),
        torch::nn::Linear(kWidth, 2));
  };
  const int64_t room = available_memory(kDevice) / (4 * kWidth);
  const int64_t samples = 2 * room;
  int64_t found = 0;
  {
    Learner learn(data_on_device(samples), wide(), quiet());
    const Tensors before = parameters_of(learn);
    found = max_batch_size(learn);
    EXPECT_TRUE(all_equal(parameters_of(learn), before));
  }
  EXPECT_LT(found, room);
  EXPECT_GT(found, room / 12);
  give_back_unused_memory(kDevice);
  DataBunch data = point_data(found, 0, {.batch_size = found, .workers = 0});
  data.device = kDevice;
  Learner(data, wide(), quiet()).fit(1);
}

TEST_F(MemoryCudaTest, PeakMemoryMeasuresEachEpoch) {
  Learner learn(data_on_device(), point_net(), quiet());
  learn.add<PeakMemory>().add<LambdaCallback>({.on_step = [](Learner& l) {
    if (l.state().epoch == 1) {
      torch::empty({64 * kMiB}, torch::dtype(torch::kByte).device(kDevice));
    }
  }});
  learn.fit(3);
  const auto& epochs = learn.find<PeakMemory>()->epochs();
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_NEAR(epochs[1] - epochs[2], 64 * kMiB, kMiB);
}

}  // namespace
}  // namespace tern::memory_cuda_test
