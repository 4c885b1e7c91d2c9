#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/batch.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace tern::patches_test {
namespace {

using torch::Tensor;

// Two images with 3 channels and 6 x 8 pixels: a grid of 3 x 4 squares of side
// 2.
Tensor pictures() {
  torch::manual_seed(1);
  return torch::rand({2, 3, 6, 8}, torch::kDouble);
}

// Squares in corners, neighbors and one in the center.
Tensor chosen() {
  Tensor chosen = torch::zeros({2, 3, 4});
  chosen[0][0][0] = chosen[0][0][1] = chosen[0][1][2] = chosen[1][2][3] = 1;
  return chosen;
}

Tensor cut_one_by_one(const Tensor& images, int64_t side, int64_t border) {
  const Tensor padded =
      torch::constant_pad_nd(images, {border, border, border, border});
  const Tensor at = chosen().nonzero();
  const int64_t full = side + 2 * border;
  Tensors patches;
  for (int64_t i = 0; i < at.size(0); ++i) {
    patches.push_back(padded[at[i][0].item<int64_t>()]
                          .narrow(1, at[i][1].item<int64_t>() * side, full)
                          .narrow(2, at[i][2].item<int64_t>() * side, full));
  }
  return torch::stack(patches);
}

TEST(Patches, AreSquaresWithTheirSurroundings) {
  const PatchPlaces places = patch_places(chosen());
  ASSERT_EQ(places.size(), 4);
  for (const int64_t border : {0, 1, 3}) {
    const Tensor patches = crop_patches(pictures(), places, 2, border);
    EXPECT_TRUE(torch::equal(patches, cut_one_by_one(pictures(), 2, border)));
    EXPECT_TRUE(patches.is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

TEST(Patches, AccumulateGradientsWhereTheyOverlap) {
  const Tensor a = pictures().requires_grad_(), b = pictures().requires_grad_();
  const Tensor patches = crop_patches(a, patch_places(chosen()), 2, 3);
  const Tensor weights = torch::rand_like(patches);
  (patches * weights).sum().backward();
  (cut_one_by_one(b, 2, 3) * weights).sum().backward();
  EXPECT_TRUE(torch::allclose(a.grad(), b.grad()));
}

TEST(Patches, ReplaceOnlyTheirSquares) {
  const PatchPlaces places = patch_places(chosen());
  const Tensor cut = crop_patches(pictures(), places, 2, 0);
  EXPECT_TRUE(
      torch::equal(replace_patches(pictures(), places, cut), pictures()));
  const Tensor replaced = replace_patches(pictures(), places, -cut);
  const Tensor inside =
      chosen().repeat_interleave(2, 1).repeat_interleave(2, 2).unsqueeze(1);
  EXPECT_TRUE(torch::equal(
      replaced,
      torch::where(inside > 0, -pictures(), pictures())));
}

TEST(Patches, ReceiveTheGradientsOfTheirSquares) {
  const PatchPlaces places = patch_places(chosen());
  const Tensor images = pictures().requires_grad_();
  const Tensor patches =
      torch::rand({places.size(), 3, 2, 2}, torch::kDouble).requires_grad_();
  const Tensor replaced = replace_patches(images * 1, places, patches);
  const Tensor weights = torch::rand_like(replaced);
  (replaced * weights).sum().backward();
  EXPECT_TRUE(
      torch::allclose(patches.grad(), crop_patches(weights, places, 2, 0)));
  const Tensor zeros = torch::zeros_like(patches).detach();
  EXPECT_TRUE(torch::allclose(
      images.grad(),
      replace_patches(weights.clone(), places, zeros)));
}

}  // namespace
}  // namespace tern::patches_test
