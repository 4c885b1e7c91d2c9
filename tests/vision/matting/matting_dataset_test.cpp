#include "tern/vision/matting/matting_dataset.h"

#include <memory>

#include <gtest/gtest.h>

#include "tern/data/data_loader.h"
#include "tern/data/formats/error.h"
#include "tern/data/k_folds.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/matting/scenes.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::matting_dataset_test {
namespace {

using namespace testing_support;  // NOLINT

MattingDataset dataset_of(
    const Scenes& scenes,
    MattingDatasetOptions options = {.size = {32, 32}}) {
  return MattingDataset(
      find_matting_files(scenes.pairs(), scenes.backgrounds()),
      std::move(options));
}

TEST(MattingDataset, RejectsFoldsThatWouldShareFiles) {
  const Scenes scenes;
  const auto data = std::make_shared<MattingDataset>(dataset_of(scenes));
  expect_error<c10::ValueError>(
      [&] { k_folds(DataBunch::create(data, nullptr, {.batch_size = 2}), 2); },
      {"k_folds", "share foregrounds or backgrounds"});
}

TEST(MattingDataset, HasAsManySamplesAsTheLongerFolder) {
  EXPECT_EQ(dataset_of(Scenes(4, 5)).size(), 5);
  EXPECT_EQ(dataset_of(Scenes(4, 2)).size(), 4);
}

TEST(MattingDataset, ReturnsBytesOfTheGivenSize) {
  const Scenes scenes;
  const MattingDataset data = dataset_of(scenes, {.size = {32, 40}});
  const Batch batch = data.get_batch({0, 4, 2}, {});
  ASSERT_EQ(batch.inputs.size(), 2u);
  for (const torch::Tensor& input : batch.inputs) {
    EXPECT_EQ(input.sizes(), torch::IntArrayRef({3, 32, 40, 3}));
    EXPECT_EQ(input.scalar_type(), torch::kByte);
  }
  ASSERT_EQ(batch.targets.size(), 1u);
  EXPECT_EQ(batch.targets[0].sizes(), torch::IntArrayRef({3, 32, 40}));
  EXPECT_NE(data.describe(4).find("pha/0.png"), std::string::npos);
}

TEST(MattingDataset, ShowsTheWholeForegroundInValidation) {
  const Scenes scenes;
  // 20 x 24 pixels are enlarged to 40 x 48; the rest is transparent.
  const MattingDataset data = dataset_of(scenes, {.size = {60, 48}});
  const torch::Tensor alpha = data.get_batch({0}, {}).targets[0][0];
  EXPECT_EQ(alpha.slice(0, 0, 10).sum().item<int64_t>(), 0);
  const double all = Scenes::disc(20).sum().item<double>();
  EXPECT_NEAR(alpha.sum().item<double>(), 4 * all, 0.03 * 4 * all);
}

// The foreground's red channel equals alpha, and must stay equal.
TEST(MattingDataset, TransformsForegroundAndAlphaAlike) {
  const Scenes scenes;
  const MattingDataset data = dataset_of(
      scenes,
      {.size = {32, 32},
       .transforms = {
           .pair = {
               random_affine(
                   {.degrees = {-30, 30},
                    .translate = 0.2f,
                    .scale = {0.5f, 1.5f},
                    .shear = {-20, 20}}),
               flip_lr(),
               box_blur(2, 0.5f),
               sharpen(0.5f)}}});
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const Batch batch = data.get_batch(
        {0, 1, 2, 3},
        {.seed = 1, .epoch = epoch, .training = true});
    const torch::Tensor red = batch.inputs[0].select(3, 0);
    EXPECT_GT(red.sum().item<int64_t>(), 0);
    EXPECT_TRUE(torch::equal(red, batch.targets[0]));
  }
}

TEST(MattingDataset, ChangesOnlyTheColorsOfTheForeground) {
  const Scenes scenes;
  const MattingDataset data = dataset_of(
      scenes,
      {.size = {32, 32},
       .transforms = {.pair = {brightness({0.7f, 0.7f}, 1)}}});
  const MattingDataset plain =
      dataset_of(scenes, {.size = {32, 32}, .transforms = {}});
  const BatchContext context{.training = true};
  const Batch brighter = data.get_batch({0}, context);
  const Batch batch = plain.get_batch({0}, context);
  EXPECT_TRUE(torch::equal(brighter.targets[0], batch.targets[0]));
  EXPECT_GT(
      brighter.inputs[0].sum().item<int64_t>(),
      batch.inputs[0].sum().item<int64_t>());
}

TEST(MattingDataset, PairsAForegroundWithADifferentBackgroundEachEpoch) {
  const Scenes scenes(4, 5);
  const MattingDataset data =
      dataset_of(scenes, {.size = {8, 8}, .transforms = {}});
  const auto shade = [&](int64_t index, int64_t epoch, bool training) {
    return data.get_batch({index}, {.epoch = epoch, .training = training})
        .inputs[1]
        .to(torch::kFloat)
        .mean()
        .item<float>();
  };
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    EXPECT_EQ(shade(1, epoch, true), 40 * ((1 + epoch) % 5 + 1));
    EXPECT_EQ(shade(1, epoch, false), 80);
  }
}

TEST(MattingDataset, BatchesAreTheSameForAnyNumberOfWorkers) {
  const Scenes scenes;
  const auto data = std::make_shared<MattingDataset>(dataset_of(scenes));
  const auto batches = [&](int64_t workers) {
    const DataLoader loader(
        data,
        {.batch_size = 2,
         .shuffle = true,
         .training = true,
         .workers = workers});
    Tensors all;
    auto epoch = loader.epoch(3);
    while (auto batch = epoch.next()) {
      for (const auto& x : batch->inputs) all.push_back(x.clone());
      for (const auto& x : batch->targets) all.push_back(x.clone());
    }
    return all;
  };
  const Tensors alone = batches(0), together = batches(2);
  ASSERT_EQ(alone.size(), 9u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(torch::equal(alone[i], together[i]));
  }
}

TEST(MattingDataset, NamesAFileThatWasDeleted) {
  const Scenes scenes;
  const MattingDataset data = dataset_of(scenes);
  std::filesystem::remove(scenes / "pairs/fgr/3.png");
  expect_error<IoError>([&] { data.get_batch({3}, {}); }, {"fgr/3.png"});
}

TEST(MattingDataset, RejectsAnInvalidSize) {
  const Scenes scenes;
  expect_error<c10::ValueError>(
      [&] {
        dataset_of(scenes, {.size = {0, 8}});
      },
      {"[MattingDataset] size is 0 x 8"});
}

}  // namespace
}  // namespace tern::matting_dataset_test
