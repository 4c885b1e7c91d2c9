#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/images/normalize_images.h"
#include "tern/tests/kernels/reference.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::normalize_images_cuda_test {
namespace {

class NormalizeImagesCudaTest : public GpuTest {};

TEST_F(NormalizeImagesCudaTest, EqualsReference) {
  for (const auto dtype : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    for (const int64_t channels : {1, 2, 3, 4, 13, 256}) {
      for (const int64_t width : {1, 7, 64}) {
        const auto images =
            torch::randint(0, 256, {2, 5, width, channels}, torch::kByte);
        std::vector<double> mean, stddev;
        for (int64_t c = 0; c < channels; ++c) {
          mean.push_back(0.4 + 0.001 * static_cast<double>(c));
          stddev.push_back(0.2 + 0.001 * static_cast<double>(c));
        }
        const auto actual =
            normalize_images(images.to(torch::kCUDA), mean, stddev, dtype);
        EXPECT_TRUE(actual.is_cuda());
        EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
        EXPECT_TRUE(all_close(
            actual,
            reference::normalize_images(images, mean, stddev, dtype)));
      }
    }
  }
}

TEST_F(NormalizeImagesCudaTest, AcceptsUnalignedViewsAndLargeBatches) {
  const std::vector<double> mean = {0.4, 0.5, 0.6}, stddev = {0.2, 0.3, 0.4};
  // More elements than four per thread of the largest grid.
  const std::vector<int64_t> sizes = {512, 300, 301, 3};
  const auto room = torch::randint(
      0,
      256,
      {512 * 300 * 301 * 3 + 1},
      torch::dtype(torch::kByte).device(torch::kCUDA));
  const auto view = room.narrow(0, 1, room.numel() - 1).view(sizes);
  EXPECT_TRUE(bit_equal(
      normalize_images(view, mean, stddev),
      normalize_images(view.clone(), mean, stddev)));
}

TEST_F(NormalizeImagesCudaTest, RejectsMoreChannelsThanTheKernelSupports) {
  const auto images = torch::zeros(
      {1, 2, 2, 257},
      torch::dtype(torch::kByte).device(torch::kCUDA));
  const std::vector<double> ones(257, 1.0);
  EXPECT_THROW(normalize_images(images, ones, ones), c10::ValueError);
}

}  // namespace
}  // namespace tern::test::normalize_images_cuda_test
