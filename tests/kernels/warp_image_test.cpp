#include "tern/kernels/images/warp_image.h"

#include <cmath>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/cpu_isa.h"

namespace tern::warp_image_test {
namespace {

/// Smooth enough that 8-bit weights cost at most one level.
torch::Tensor picture(int64_t height, int64_t width, int64_t channels) {
  const torch::Tensor y = torch::arange(height).view({-1, 1, 1});
  const torch::Tensor x = torch::arange(width).view({1, -1, 1});
  const torch::Tensor c = torch::arange(channels).view({1, 1, -1});
  return ((x * 7 + y * 5 + c * 40) % 128 + 60).to(torch::kByte).contiguous();
}

PixelView view_of(const torch::Tensor& image) {
  const auto* pixels = image.const_data_ptr<uint8_t>();
  return {
      .pixels = pixels,
      .height = image.size(0),
      .width = image.size(1),
      .channels = image.size(2),
      .stride = image.stride(0),
      .end = pixels + image.numel()};
}

torch::Tensor warped(
    const torch::Tensor& image,
    const Warp& warp,
    int64_t height,
    int64_t width) {
  torch::Tensor out =
      torch::empty({height, width, image.size(2)}, torch::kByte);
  warp_image(view_of(image), warp, height, width, out.data_ptr<uint8_t>());
  return out;
}

/// The same warp by LibTorch.
torch::Tensor grid_sampled(
    const torch::Tensor& image,
    const Warp& warp,
    int64_t height,
    int64_t width) {
  torch::Tensor grid = torch::empty({1, height, width, 2});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto [u, v] = warp.matrix.apply(
          static_cast<double>(x) + 0.5,
          static_cast<double>(y) + 0.5);
      grid[0][y][x][0] = 2 * u / static_cast<double>(image.size(1)) - 1;
      grid[0][y][x][1] = 2 * v / static_cast<double>(image.size(0)) - 1;
    }
  }
  return at::grid_sampler(
             image.permute({2, 0, 1}).unsqueeze(0).to(torch::kFloat),
             grid,
             warp.sampling == Sampling::nearest ? 1 : 0,
             warp.padding == Padding::zeros    ? 0
             : warp.padding == Padding::border ? 1
                                               : 2,
             /*align_corners=*/false)
      .squeeze(0)
      .permute({1, 2, 0})
      .round()
      .to(torch::kByte);
}

int64_t largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kInt) - b.to(torch::kInt)).abs().max().item<int64_t>();
}

std::vector<Matrix3> matrices() {
  Matrix3 tilted = Matrix3::translation(3, -2);
  tilted.values[6] = 0.004;
  tilted.values[7] = -0.003;
  return {
      Matrix3{},
      Matrix3::translation(4.25, -3.5),
      Matrix3::scaling(1.5, 0.6),
      Matrix3::translation(15, 10) * Matrix3::rotation(0.4) *
          Matrix3::translation(-15, -10),
      Matrix3::translation(60, 0) * Matrix3::scaling(-2.5, 2.5),
      tilted};
}

TEST(WarpImage, EqualsGridSample) {
  for (const int64_t channels : {1, 3}) {
    const torch::Tensor image = picture(23, 31, channels);
    for (const Padding padding :
         {Padding::zeros, Padding::border, Padding::reflection}) {
      int number = 0;
      for (const Matrix3& matrix : matrices()) {
        const Warp warp = {.matrix = matrix, .padding = padding};
        EXPECT_LE(
            largest_difference(
                warped(image, warp, 20, 33),
                grid_sampled(image, warp, 20, 33)),
            1)
            << "matrix " << number++ << " channels " << channels;
      }
    }
  }
}

TEST(WarpImage, SamplesNearestPixelsWithoutMixing) {
  const torch::Tensor image = picture(23, 31, 1);
  Warp warp = {
      .matrix = Matrix3::translation(0.26, 0.13) * Matrix3::scaling(1.3, 0.7),
      .sampling = Sampling::nearest};
  for (const Padding padding :
       {Padding::zeros, Padding::border, Padding::reflection}) {
    warp.padding = padding;
    EXPECT_TRUE(torch::equal(
        warped(image, warp, 40, 28),
        grid_sampled(image, warp, 40, 28)));
  }
}

TEST(WarpImage, IsExactWhereItOnlyMovesPixels) {
  const torch::Tensor image = torch::randint(256, {19, 26, 3}, torch::kByte);
  const Matrix3 mirrored = {{-1, 0, 26, 0, 1, 0, 0, 0, 1}};
  EXPECT_TRUE(
      torch::equal(warped(image, {.matrix = mirrored}, 19, 26), image.flip(1)));
  EXPECT_TRUE(torch::equal(
      warped(image, {.matrix = Matrix3::translation(5, 4)}, 10, 12),
      image.slice(0, 4, 14).slice(1, 5, 17)));
}

TEST(WarpImage, IsBitIdenticalOnEveryProcessor) {
  const torch::Tensor image = torch::randint(256, {57, 61, 3}, torch::kByte);
  const CpuIsa best = best_cpu_isa();
  if (best == CpuIsa::baseline) {
    GTEST_SKIP() << "this processor has neither AVX2 nor NEON";
  }
  for (const Matrix3& matrix : matrices()) {
    const Warp warp = {
        .matrix = matrix,
        .jitter_x = 1.5f,
        .jitter_y = 0.5f,
        .jitter_key = 9};
    set_cpu_isa(CpuIsa::baseline);
    const torch::Tensor expected = warped(image, warp, 64, 300);
    for (const CpuIsa isa : {CpuIsa::avx2, best}) {
      set_cpu_isa(isa);
      EXPECT_TRUE(torch::equal(warped(image, warp, 64, 300), expected));
    }
  }
  set_cpu_isa(best);
}

TEST(WarpImage, JittersPixels) {
  const torch::Tensor image = picture(40, 40, 1);
  const Warp warp = {.jitter_x = 3, .jitter_key = 5};
  const torch::Tensor moved = warped(image, warp, 40, 40);
  for (const int64_t x : {10, 20, 30}) {
    const double u = static_cast<double>(x) + warp_jitter(5, 7, x).first * 3.0;
    const auto left = static_cast<int64_t>(std::floor(u));
    const double part = u - static_cast<double>(left);
    const double expected = image[7][left][0].item<double>() * (1 - part) +
                            image[7][left + 1][0].item<double>() * part;
    EXPECT_NEAR(moved[7][x][0].item<double>(), expected, 1.1);
  }
}

TEST(WarpImage, AcceptsImagesOfOnePixelRowOrColumn) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {9, 1}}) {
    const torch::Tensor image = picture(height, width, 3);
    for (const Padding padding :
         {Padding::zeros, Padding::border, Padding::reflection}) {
      const Warp warp = {
          .matrix = Matrix3::scaling(width / 5.0, height / 4.0),
          .padding = padding};
      EXPECT_LE(
          largest_difference(
              warped(image, warp, 4, 5),
              grid_sampled(image, warp, 4, 5)),
          1)
          << height << " x " << width;
    }
  }
}

// The image has 2.7 GB; only the touched pages take memory.
TEST(WarpImage, ReachesTheEndOfAnImageOfMoreThanTwoGigabytes) {
  constexpr int64_t kSide = 30'000, kChannels = 3;
  constexpr size_t kBytes = kSide * kSide * kChannels;
  void* const memory = ::mmap(
      nullptr,
      kBytes,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      -1,
      0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const pixels = static_cast<uint8_t*>(memory);
  const PixelView view = {
      .pixels = pixels,
      .height = kSide,
      .width = kSide,
      .channels = kChannels,
      .stride = kSide * kChannels,
      .end = pixels + kBytes};
  constexpr int64_t kPart = 8;
  uint8_t* const corner =
      pixels + (kSide - kPart) * view.stride + (kSide - kPart) * kChannels;
  torch::Tensor expected = picture(kPart, kPart, kChannels);
  for (int64_t row = 0; row < kPart; ++row) {
    std::memcpy(
        corner + row * view.stride,
        expected[row].const_data_ptr(),
        kPart * kChannels);
  }
  for (const Sampling sampling : {Sampling::bilinear, Sampling::nearest}) {
    for (const Padding padding : {Padding::zeros, Padding::reflection}) {
      torch::Tensor out = torch::empty({kPart, kPart, kChannels}, torch::kByte);
      warp_image(
          view,
          {.matrix = Matrix3::translation(kSide - kPart, kSide - kPart),
           .padding = padding,
           .sampling = sampling},
          kPart,
          kPart,
          out.mutable_data_ptr<uint8_t>());
      EXPECT_TRUE(torch::equal(out, expected));
    }
  }
  ::munmap(memory, kBytes);
}

TEST(WarpImage, SurvivesADegenerateMatrix) {
  const torch::Tensor image = picture(8, 8, 3);
  const double huge = 1e30, none = std::nan("");
  for (const Matrix3& matrix :
       {Matrix3{{huge, 0, 0, 0, huge, 0, 0, 0, 1}},
        Matrix3{{none, none, none, 0, 1, 0, 0, 0, 1}},
        Matrix3{{1, 0, 0, 0, 1, 0, 1, 0, -4.5}}}) {
    for (const Padding padding :
         {Padding::zeros, Padding::border, Padding::reflection}) {
      for (const Sampling sampling : {Sampling::bilinear, Sampling::nearest}) {
        const torch::Tensor out = warped(
            image,
            {.matrix = matrix, .padding = padding, .sampling = sampling},
            9,
            9);
        EXPECT_EQ(out.numel(), 243);
      }
    }
  }
}

TEST(ShrinkByArea, AveragesBlocks) {
  const torch::Tensor image = torch::randint(256, {13, 29, 3}, torch::kByte);
  const int64_t down = 4, across = 3;
  torch::Tensor out = torch::empty({4, 10, 3}, torch::kByte);
  shrink_by_area(view_of(image), down, across, out.data_ptr<uint8_t>());
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 10; ++x) {
      const torch::Tensor block =
          image.slice(0, y * down, std::min<int64_t>(13, (y + 1) * down))
              .slice(1, x * across, std::min<int64_t>(29, (x + 1) * across));
      const torch::Tensor mean =
          block.to(torch::kDouble).mean(c10::IntArrayRef{0, 1});
      for (int64_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(
            out[y][x][c].item<double>(),
            mean[c].item<double>(),
            0.5001);
      }
    }
  }
}

TEST(ShrinkByArea, AcceptsBlocksLongerThanItsBuffer) {
  const torch::Tensor image = torch::full({3, 5000, 3}, 77, torch::kByte);
  torch::Tensor out = torch::empty({1, 3, 3}, torch::kByte);
  shrink_by_area(view_of(image), 3, 2000, out.data_ptr<uint8_t>());
  EXPECT_TRUE(torch::equal(out, torch::full({1, 3, 3}, 77, torch::kByte)));
}

}  // namespace
}  // namespace tern::warp_image_test
