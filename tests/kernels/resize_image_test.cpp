#include "tern/kernels/images/resize_image.h"

#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/types.h>

#include "tern/kernels/cpu_isa.h"

namespace tern::resize_image_test {
namespace {

struct Sides {
  int64_t height, width;
};

torch::Tensor noise(int64_t height, int64_t width, int64_t channels) {
  torch::manual_seed(1);
  return torch::randint(256, {height, width, channels}, torch::kByte);
}

torch::Tensor
resized(const torch::Tensor& image, const Warp& warp, Sides size) {
  torch::Tensor out =
      torch::empty({size.height, size.width, image.size(2)}, torch::kByte);
  const auto* pixels = image.const_data_ptr<uint8_t>();
  const PixelView view = {
      .pixels = pixels,
      .height = image.size(0),
      .width = image.size(1),
      .channels = image.size(2),
      .stride = image.stride(0),
      .end = pixels + image.numel()};
  resize_image(view, warp, size.height, size.width, out.data_ptr<uint8_t>());
  return out;
}

Warp stretch(const torch::Tensor& image, Sides size) {
  return {
      .matrix = Matrix3::scaling(
          static_cast<double>(image.size(1)) / static_cast<double>(size.width),
          static_cast<double>(image.size(0)) /
              static_cast<double>(size.height))};
}

/// The same resize by LibTorch, which uses Pillow's weights.
torch::Tensor reference(const torch::Tensor& image, Sides size) {
  namespace F = torch::nn::functional;
  const auto options = F::InterpolateFuncOptions()
                           .size(std::vector<int64_t>{size.height, size.width})
                           .mode(torch::kBilinear)
                           .align_corners(false)
                           .antialias(true);
  return F::interpolate(
             image.permute({2, 0, 1}).unsqueeze(0).to(torch::kDouble),
             options)[0]
      .permute({1, 2, 0});
}

double worst(const torch::Tensor& image, const torch::Tensor& expected) {
  EXPECT_EQ(image.sizes(), expected.sizes());
  return (image.to(torch::kDouble) - expected).abs().max().item<double>();
}

const std::vector<Sides> kSizes =
    {{11, 20}, {37, 53}, {19, 120}, {150, 7}, {1, 1}, {97, 131}};

TEST(ResizeImage, IsWithinOneLevelOfPillowsAntialiasing) {
  for (const int64_t channels : {1, 3, 4}) {
    const torch::Tensor image = noise(37, 53, channels);
    for (const Sides size : kSizes) {
      EXPECT_LE(
          worst(
              resized(image, stretch(image, size), size),
              reference(image, size)),
          0.6)
          << size.height << " x " << size.width;
    }
  }
  const torch::Tensor large = noise(900, 700, 3);
  EXPECT_LE(
      worst(
          resized(large, stretch(large, {9, 13}), {9, 13}),
          reference(large, {9, 13})),
      0.6);
}

TEST(ResizeImage, IsBitIdenticalOnEveryInstructionSet) {
  if (best_cpu_isa() == CpuIsa::baseline) {
    GTEST_SKIP() << "this processor has neither AVX2 nor NEON";
  }
  const torch::Tensor image = noise(37, 53, 3);
  for (const Sides size : kSizes) {
    set_cpu_isa(CpuIsa::baseline);
    const torch::Tensor expected = resized(image, stretch(image, size), size);
    for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::avx512}) {
      set_cpu_isa(isa);
      EXPECT_TRUE(resized(image, stretch(image, size), size).equal(expected));
    }
  }
  set_cpu_isa(best_cpu_isa());
}

TEST(ResizeImage, FlipsTransposesAndCrops) {
  const torch::Tensor image = noise(36, 54, 3);
  const torch::Tensor whole =
      resized(image, stretch(image, {12, 18}), {12, 18});
  // Rows and columns are swapped, then both are reversed.
  Warp warp = {.matrix = Matrix3{{0, -3, 54, -3, 0, 36, 0, 0, 1}}};
  ASSERT_TRUE(only_resizes(warp));
  EXPECT_TRUE(resized(image, warp, {18, 12})
                  .equal(whole.transpose(0, 1).flip({0, 1}).contiguous()));
  warp.matrix = Matrix3::scaling(3, 3) * Matrix3::translation(5, 2);
  EXPECT_TRUE(resized(image, warp, {7, 9})
                  .equal(whole.slice(0, 2, 9).slice(1, 5, 14).contiguous()));
  warp.matrix = Matrix3::rotation(0.1);
  EXPECT_FALSE(only_resizes(warp));
}

TEST(ResizeImage, PadsTheResizedImageWithoutFadingItsEdges) {
  for (const double scale : {0.25, 2.5}) {
    const torch::Tensor image = noise(20, 30, 3);
    const auto height = static_cast<int64_t>(20 / scale);
    const auto width = static_cast<int64_t>(30 / scale);
    Warp warp = {.matrix = Matrix3::scaling(scale, scale)};
    const torch::Tensor whole = resized(image, warp, {height, width});
    warp.matrix = warp.matrix * Matrix3::translation(-3, -4);
    const auto padded = [&](Padding padding) {
      warp.padding = padding;
      return resized(image, warp, {height + 8, width + 6});
    };
    const auto part = [&](const torch::Tensor& all) {
      return all.slice(0, 4, 4 + height).slice(1, 3, 3 + width);
    };
    torch::Tensor zeros =
        torch::zeros({height + 8, width + 6, 3}, torch::kByte);
    part(zeros).copy_(whole);
    EXPECT_TRUE(padded(Padding::zeros).equal(zeros)) << scale;

    const torch::Tensor mirrored = padded(Padding::reflection);
    EXPECT_TRUE(part(mirrored).equal(whole)) << scale;
    EXPECT_TRUE(mirrored.slice(0, 0, 4)
                    .slice(1, 3, 3 + width)
                    .equal(whole.slice(0, 0, 4).flip({0})))
        << scale;
    const torch::Tensor border = padded(Padding::border);
    EXPECT_TRUE(part(border).equal(whole)) << scale;
    EXPECT_TRUE(border[4][0].equal(whole[0][0])) << scale;
    EXPECT_TRUE(border[height + 7][width + 5].equal(whole[-1][-1])) << scale;
  }
}

}  // namespace
}  // namespace tern::resize_image_test
