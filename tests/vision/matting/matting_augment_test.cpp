#include <set>

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"
#include "tern/vision/matting/matting_data.h"

namespace tern::matting_augment_test {
namespace {

Batch raw_batch(int64_t count = 6, int64_t height = 32, int64_t width = 40) {
  torch::manual_seed(5);
  const auto bytes = [](torch::IntArrayRef shape) {
    return torch::randint(256, shape, torch::kByte);
  };
  return {
      {bytes({count, height, width, 3}), bytes({count, height, width, 3})},
      {bytes({count, height, width})}};
}

const MattingAugmentOptions kNothing{
    .min_crop = 1,
    .p_shadow = 0,
    .p_noise = 0,
    .p_jitter = 0,
    .p_affine = 0};

Batch augmented(
    const MattingAugmentOptions& options,
    const BatchTransformContext& context = {.training = true, .seed = 3},
    Batch batch = raw_batch()) {
  matting_augment(options)(batch, context);
  return batch;
}

bool equal(const Batch& a, const Batch& b) {
  for (size_t i = 0; i < 2; ++i) {
    if (!torch::equal(a.inputs[i], b.inputs[i])) return false;
    if (!torch::equal(a.targets[i], b.targets[i])) return false;
  }
  return true;
}

TEST(MattingAugment, CompositesTheForegroundOverTheBackground) {
  const Batch raw = raw_batch(), batch = augmented(kNothing);
  const auto floating = [](const torch::Tensor& x) {
    return x.permute({0, 3, 1, 2}).to(torch::kFloat) / 255;
  };
  const torch::Tensor fgr = floating(raw.inputs[0]);
  const torch::Tensor bgr = floating(raw.inputs[1]);
  const torch::Tensor pha = floating(raw.targets[0].unsqueeze(3));
  EXPECT_TRUE(
      test::all_close(batch.inputs[0], fgr * pha + bgr * (1 - pha), {0, 1e-6}));
  EXPECT_TRUE(test::all_close(batch.inputs[1], bgr, {0, 1e-6}));
  EXPECT_TRUE(test::all_close(batch.targets[0], pha, {0, 1e-6}));
  EXPECT_TRUE(test::all_close(batch.targets[1], fgr, {0, 1e-6}));
}

TEST(MattingAugment, LeavesValidationBatchesUnchanged) {
  EXPECT_TRUE(equal(augmented({}, {.seed = 3}), augmented(kNothing)));
}

TEST(MattingAugment, CropsEachBatchToARandomSize) {
  std::set<int64_t> heights;
  for (int64_t number = 0; number < 30; ++number) {
    const Batch batch =
        augmented({}, {.training = true, .seed = 3, .batch = number});
    const int64_t height = batch.inputs[0].size(2);
    const int64_t width = batch.inputs[0].size(3);
    EXPECT_EQ(height % 4 + width % 4, 0);
    EXPECT_GE(height, 16);
    EXPECT_LT(height, 32);
    EXPECT_GE(width, 20);
    EXPECT_LT(width, 40);
    EXPECT_EQ(
        batch.targets[0].sizes(),
        torch::IntArrayRef({6, 1, height, width}));
    EXPECT_EQ(batch.targets[1].sizes(), batch.inputs[0].sizes());
    heights.insert(height);
  }
  EXPECT_EQ(heights, (std::set<int64_t>{16, 20, 24, 28}));
}

TEST(MattingAugment, DependsOnlyOnSeedEpochAndBatch) {
  const auto with = [](uint64_t seed, int64_t epoch, int64_t batch) {
    MattingAugmentOptions options;
    options.min_crop = 1;  // equal sizes, for the comparison
    return augmented(
        options,
        {.training = true, .seed = seed, .epoch = epoch, .batch = batch});
  };
  EXPECT_TRUE(equal(with(1, 2, 3), with(1, 2, 3)));
  EXPECT_FALSE(equal(with(1, 2, 3), with(2, 2, 3)));
  EXPECT_FALSE(equal(with(1, 2, 3), with(1, 3, 3)));
  EXPECT_FALSE(equal(with(1, 2, 3), with(1, 2, 4)));
}

TEST(MattingAugment, DoesNotUseTheGlobalGenerator) {
  Batch batch = raw_batch();
  torch::manual_seed(9);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(9);
  augmented({.p_noise = 1}, {.training = true}, std::move(batch));
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(MattingAugment, ShadowsDarkenOnlyTheSceneBehindTheForeground) {
  MattingAugmentOptions options = kNothing;
  options.p_shadow = 1;
  const Batch plain = augmented(kNothing), shaded = augmented(options);
  const torch::Tensor darker = plain.inputs[0] - shaded.inputs[0];
  EXPECT_GE(darker.min().item<float>(), -1e-6);
  EXPECT_GT(darker.amax({1, 2, 3}).min().item<float>(), 1e-3);
  EXPECT_LT(darker.max().item<float>(), 0.3f);
  EXPECT_TRUE(torch::equal(plain.inputs[1], shaded.inputs[1]));
  EXPECT_TRUE(torch::equal(plain.targets[0], shaded.targets[0]));
  // The shadow is behind the foreground.
  const torch::Tensor opaque = plain.targets[0] == 1;
  EXPECT_EQ((darker * opaque).abs().max().item<float>(), 0);
}

TEST(MattingAugment, AddsNoiseWithTheGivenProbability) {
  MattingAugmentOptions options = kNothing;
  options.p_noise = 0.4f;
  const Batch raw = raw_batch(200, 8, 8);
  const Batch plain = augmented(kNothing, {.training = true}, raw);
  const Batch noisy = augmented(options, {.training = true}, raw);
  for (const size_t i : {0, 1}) {
    const torch::Tensor noise = noisy.inputs[i] - plain.inputs[i];
    const torch::Tensor deviation = noise.square().mean({1, 2, 3}).sqrt();
    EXPECT_NEAR((deviation > 0).sum().item<double>(), 80, 25);
    EXPECT_LT(deviation.max().item<float>(), 0.04f);
    EXPECT_GT(deviation.max().item<float>(), 0.02f);
  }
  EXPECT_TRUE(torch::equal(noisy.targets[1], plain.targets[1]));
}

TEST(MattingAugment, ChangesColorsAndPositionOfTheCapturedBackground) {
  for (const bool moves : {false, true}) {
    MattingAugmentOptions options = kNothing;
    (moves ? options.p_affine : options.p_jitter) = 1;
    const Batch plain = augmented(kNothing), changed = augmented(options);
    EXPECT_TRUE(torch::equal(plain.inputs[0], changed.inputs[0]));
    const torch::Tensor difference =
        (plain.inputs[1] - changed.inputs[1]).abs().mean({1, 2, 3});
    EXPECT_GT(difference.min().item<float>(), 1e-3) << moves;
    EXPECT_GE(changed.inputs[1].min().item<float>(), 0);
    EXPECT_LE(changed.inputs[1].max().item<float>(), 1);
  }
}

TEST(MattingAugment, RejectsBatchesOfTheWrongLayout) {
  Batch batch = raw_batch();
  batch.targets.clear();
  expect_error<c10::ValueError>(
      [&] { augmented({}, {}, batch); },
      {"[matting_augment] the batch has 2 inputs and 0 targets"});
}

TEST(MattingAugment, RejectsInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { matting_augment({.p_shadow = 1.5f}); },
      {"[matting_augment] p_shadow is 1.5"});
  expect_error<c10::ValueError>(
      [] { matting_augment({.min_shadow_blur = 50}); },
      {"50 to 39 pixels"});
}

}  // namespace
}  // namespace tern::matting_augment_test
