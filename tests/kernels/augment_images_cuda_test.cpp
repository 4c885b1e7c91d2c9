#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/images/augment_images.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::augment_images_cuda_test {
namespace {

class AugmentImagesCudaTest : public GpuTest {};

std::vector<ImageChange> various_changes(int64_t count) {
  std::vector<ImageChange> changes(static_cast<size_t>(count));
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto number = static_cast<float>(i);
    ImageChange& change = changes[i];
    change.warp.matrix = Matrix3::translation(0.7 * number, -1.3) *
                         Matrix3::rotation(0.1 * number) *
                         Matrix3::scaling(0.9, 1.1);
    change.warp.matrix.values[6] = 1e-4 * number;
    change.warp.padding = static_cast<Padding>(i % 3);
    change.warp.jitter_x = change.warp.jitter_y = i % 2 ? 1.5f : 0.f;
    change.warp.jitter_key = static_cast<uint32_t>(i);
    change.mixes_colors = i % 4 == 1;
    change.scale = 1.2f;
    change.shift = 0.1f;
    change.saturation = 0.7f;
    change.hue = 0.1f * number;
    if (i % 2) change.table[100] = 7;
    change.rectangles.resize(i % 3);
    for (PaintedRectangle& r : change.rectangles) {
      r = {
          .top = 2,
          .left = 3,
          .bottom = 9,
          .right = 8,
          .noise_key = 5,
          .noise = i % 2 == 0,
          .value = 77};
    }
  }
  return changes;
}

TEST_F(AugmentImagesCudaTest, EqualsTheCpu) {
  const std::vector<double> mean = {0.4, 0.5, 0.6}, stddev = {0.2, 0.3, 0.4};
  for (const int64_t channels : {1, 3}) {
    for (const auto& [height, width] :
         {std::pair{1, 1}, {1, 5}, {37, 41}, {224, 224}}) {
      const auto images =
          torch::randint(0, 256, {9, height, width, channels}, torch::kByte);
      const auto changes = various_changes(9);
      const auto count = static_cast<size_t>(channels);
      for (const auto dtype :
           {torch::kByte, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
        const auto run = [&](const torch::Tensor& on) {
          return augment_images(
              on,
              changes,
              c10::ArrayRef(mean.data(), count),
              c10::ArrayRef(stddev.data(), count),
              dtype);
        };
        const auto actual = run(images.to(torch::kCUDA));
        EXPECT_TRUE(actual.is_cuda());
        const auto expected = run(images);
        EXPECT_EQ(actual.strides(), expected.strides());
        const auto difference =
            (actual.cpu().to(torch::kFloat) - expected.to(torch::kFloat)).abs();
        // Some pixels are at a rounding boundary or at the step of the lookup
        // table.
        const double step = dtype == torch::kByte ? 1 : 1 / (255 * 0.2);
        const int64_t others = difference.gt(0.6 * step).sum().item<int64_t>();
        EXPECT_LE(others, 2 + difference.numel() / 100);
        const int64_t far = difference.gt(3.5 * step).sum().item<int64_t>();
        EXPECT_LE(far, 2 + difference.numel() / 1000);
      }
    }
  }
}

}  // namespace
}  // namespace tern::augment_images_cuda_test
