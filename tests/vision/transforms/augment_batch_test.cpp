#include "tern/vision/transforms/augment_batch.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/images/augment_images.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/vision/transforms/render.h"
#include "tern/tests/vision/transforms/render_reference.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::augment_batch_test {
namespace {

/// Returns [N, size, size, 3] without sharp edges.
torch::Tensor smooth_batch(int64_t count, int64_t size) {
  const auto ramp = [&](double frequency) {
    return torch::sin(torch::arange(size) * frequency);
  };
  torch::Tensor image =
      (ramp(0.11).view({-1, 1, 1}) + ramp(0.07).view({1, -1, 1}) +
       torch::tensor({0.f, 0.3f, 0.6f})) *
          45 +
      120;
  return image.round()
      .clamp(0, 255)
      .to(torch::kByte)
      .expand({count, size, size, 3})
      .contiguous();
}

std::vector<SamplePlan> plans_for(
    const Transforms& transforms,
    int64_t count,
    ImageSize size,
    Padding padding) {
  std::vector<SamplePlan> plans;
  for (int64_t i = 0; i < count; ++i) {
    plans.push_back(planned(
        transforms,
        size,
        static_cast<uint64_t>(i),
        size,
        {.resize = ResizeMethod::none, .padding = padding}));
  }
  return plans;
}

struct Case {
  const char* name;
  Transforms transforms;
};

class RenderBatch : public testing::TestWithParam<Case> {};

void expect_close(
    const torch::Tensor& a,
    const torch::Tensor& b,
    int most,
    double on_average) {
  const torch::Tensor difference =
      (a.to(torch::kInt) - b.to(torch::kInt)).abs();
  EXPECT_LE(difference.max().item<int>(), most);
  EXPECT_LE(difference.to(torch::kFloat).mean().item<double>(), on_average);
}

TEST_P(RenderBatch, MatchesTheLoaderInOneLaunch) {
  const torch::Tensor images = smooth_batch(12, 48);
  for (const Padding padding :
       {Padding::zeros, Padding::border, Padding::reflection}) {
    const auto plans = plans_for(GetParam().transforms, 12, {48, 48}, padding);
    const torch::Tensor a = render_on_cpu(images, plans);
    const torch::Tensor b =
        augment_images(images, changes_of(plans, 3), {}, {}, torch::kByte);
    expect_close(a, b, 2, 0.02);
    // The reference rounds to bytes before the lighting, which may amplify the
    // error.
    expect_close(
        b,
        testing_support::render_with_tensors(images, plans),
        3,
        0.3);
    const torch::Tensor gray = images.slice(3, 0, 1).contiguous();
    expect_close(
        render_on_cpu(gray, plans),
        augment_images(gray, changes_of(plans, 1), {}, {}, torch::kByte),
        2,
        0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Transforms,
    RenderBatch,
    testing::Values(
        Case{"none", {}},
        Case{"all_of_fastai", get_transforms().train},
        Case{"perspective", {perspective(0.2f, 1)}},
        Case{"jitter", {jitter({0.05f, 0.05f}, 1)}},
        Case{"colors", {saturation(0.3f, 1), hue(0.2f, 1), brightness()}},
        Case{"erasing", {cutout({2, 2}, {10, 12}, 1), random_erasing(1)}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RenderBatch, TransformsMasksWithTheirImages) {
  // The mask marks where the image is bright.
  torch::Tensor images = torch::zeros({6, 32, 32, 3}, torch::kByte);
  torch::Tensor masks = torch::zeros({6, 32, 32}, torch::kLong);
  images.slice(1, 8, 20).slice(2, 10, 22).fill_(255);
  masks.slice(1, 8, 20).slice(2, 10, 22).fill_(11);
  const auto plans = plans_for(
      {rotate({-30, 30}, 1), flip_lr(), symmetric_warp()},
      6,
      {32, 32},
      Padding::reflection);
  const torch::Tensor bright = render_on_cpu(images, plans).select(3, 0) > 127;
  const torch::Tensor chosen = render_masks(masks, plans);
  EXPECT_TRUE(chosen.eq(0).logical_or(chosen.eq(11)).all().item<bool>());
  const auto wrong =
      bright.ne(chosen.eq(11)).to(torch::kFloat).mean().item<double>();
  EXPECT_LT(wrong, 0.01);
}

// Flips and rotations by 90 degrees transform masks and images identically.
TEST(AugmentBatch, TransformsMasksOfAnyDtypeWithTheirImages) {
  for_random_cases(30, [](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(rng.below(high - low + 1));
    };
    const int64_t count = draw(0, 5), side = draw(2, 20);
    const torch::Tensor images = torch::arange(count * side * side)
                                     .add(draw(0, 250))
                                     .mul(37)
                                     .remainder(251)
                                     .to(torch::kByte)
                                     .view({count, side, side, 1});
    const auto padding = static_cast<Padding>(draw(0, 2));
    const torch::Tensor plain = images.squeeze(3);
    Batch batch{{images}, {}};
    for (const auto type :
         {torch::kByte,
          torch::kShort,
          torch::kUInt16,
          torch::kInt,
          torch::kLong,
          torch::kHalf,
          torch::kFloat,
          torch::kDouble}) {
      batch.targets.push_back(plain.to(type));
      batch.targets.push_back(plain.to(type).unsqueeze(1));
    }
    batch.targets.push_back(plain > 100);
    batch.targets.push_back(plain.to(torch::kLong) * 123'456'789'012);
    // Targets that are not masks.
    batch.targets.push_back(torch::arange(count));
    batch.targets.push_back(torch::ones({count, 4}));
    const Tensors before = batch.targets;
    augment_batch({flip_lr(), dihedral(0.7f)}, padding)(
        batch,
        {.training = true, .seed = seed});
    const torch::Tensor moved = batch.inputs[0].squeeze(3);
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      const torch::Tensor& target = batch.targets[i];
      ASSERT_EQ(target.sizes(), before[i].sizes());
      ASSERT_EQ(target.scalar_type(), before[i].scalar_type());
      if (i < 16) {
        EXPECT_TRUE(
            torch::equal(target.view(moved.sizes()).to(torch::kByte), moved));
      } else if (i == 16) {
        EXPECT_TRUE(torch::equal(target, moved > 100));
      } else if (i == 17) {
        EXPECT_TRUE(
            torch::equal(target, moved.to(torch::kLong) * 123'456'789'012));
      } else {
        EXPECT_TRUE(torch::equal(target, before[i]));
      }
    }
  });
}

TEST(AugmentBatch, RejectsOtherSpatialTargetsUnlessOnlyColorsChange) {
  const std::vector<std::vector<int64_t>> shapes = {
      {4, 32, 32, 3},
      {4, 3, 32, 32},
      {4, 16, 16},
      {4, 5, 4}};
  for (const std::vector<int64_t>& shape : shapes) {
    const torch::Tensor target = torch::rand(shape);
    Batch batch{{smooth_batch(4, 32)}, {target}};
    expect_error<c10::ValueError>(
        [&] { augment_batch({flip_lr(1)})(batch, {.training = true}); },
        {"whose pixels are moved", "[N, 1, H, W]"});
    augment_batch({brightness()})(batch, {.training = true});
    EXPECT_TRUE(torch::equal(batch.targets[0], target));
  }
}

Batch augmented(const BatchTransformContext& context) {
  Batch batch{{smooth_batch(4, 32)}, {torch::zeros({4}, torch::kLong)}};
  augment_batch(get_transforms().train)(batch, context);
  return batch;
}

TEST(AugmentBatch, DependsOnlyOnSeedEpochAndBatch) {
  const torch::Tensor first =
      augmented({.training = true, .seed = 1, .epoch = 2, .batch = 3})
          .inputs[0];
  EXPECT_TRUE(torch::equal(
      first,
      augmented({.training = true, .seed = 1, .epoch = 2, .batch = 3})
          .inputs[0]));
  for (const auto& [seed, epoch, batch] :
       {std::tuple{2, 2, 3}, {1, 3, 3}, {1, 2, 4}}) {
    EXPECT_FALSE(torch::equal(
        first,
        augmented({.training = true,
                   .seed = static_cast<uint64_t>(seed),
                   .epoch = epoch,
                   .batch = batch})
            .inputs[0]));
  }
  // Each sample differs.
  EXPECT_FALSE(torch::equal(first[0], first[1]));
}

TEST(AugmentBatch, LeavesValidationUnchanged) {
  EXPECT_TRUE(torch::equal(
      augmented({.training = false}).inputs[0],
      smooth_batch(4, 32)));
}

TEST(AugmentBatch, NormalizesIfStatisticsAreGiven) {
  const BatchTransform alone = augment_batch(get_transforms().train);
  const BatchTransform both = augment_batch(
      get_transforms().train,
      Padding::reflection,
      stats::imagenet());
  const BatchTransform after =
      normalize(stats::imagenet().mean, stats::imagenet().stddev);
  for (const bool training : {true, false}) {
    const BatchTransformContext context{
        .training = training,
        .dtype = torch::kBFloat16};
    Batch a{{smooth_batch(4, 32)}, {}}, b = a;
    alone(a, context);
    after(a, context);
    both(b, context);
    EXPECT_TRUE(torch::equal(a.inputs[0], b.inputs[0]));
    EXPECT_EQ(b.inputs[0].scalar_type(), torch::kBFloat16);
  }
  Batch seen{{smooth_batch(4, 32)}, {}};
  both(seen, {.training = true, .keeps_bytes = true});
  EXPECT_EQ(seen.inputs[0].scalar_type(), torch::kByte);
}

TEST(AugmentBatch, RejectsPixelFunctions) {
  SamplePlan plan;
  plan.begin({4, 4}, {4, 4}, Padding::border);
  plan.pixel_functions.emplace_back([](const MutablePixels&) {});
  expect_error<c10::ValueError>(
      [&] { changes_of({plan}, 3); },
      {"changes pixels by a function", "to the loader"});
}

TEST(AugmentBatch, RejectsANormalizedBatch) {
  Batch batch{{torch::zeros({2, 3, 8, 8})}, {}};
  expect_error<c10::ValueError>(
      [&] { augment_batch({flip_lr()})(batch, {.training = true}); },
      {"[2, 3, 8, 8] Float", "before normalize"});
}

}  // namespace
}  // namespace tern::augment_batch_test
