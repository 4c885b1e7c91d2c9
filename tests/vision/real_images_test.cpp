// Unmodified photos and street scenes from TERN_DATA.
#include <vector>

#include <gtest/gtest.h>

#include "tern/tests/support/test_data.h"
#include "tern/vision/data_block.h"
#include "tern/vision/datasets/bad_images.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/get_transforms.h"

namespace tern::real_images_test {
namespace {

/// Returns the sum of each batch, which is ten times faster to compare than
/// pixels.
std::vector<int64_t> sums_of(const DataLoader& loader) {
  std::vector<int64_t> sums;
  for (auto epoch = loader.epoch(1); auto batch = epoch.next();) {
    sums.push_back(batch->inputs[0].to(torch::kLong).sum().item<int64_t>());
    sums.push_back(batch->targets[0].to(torch::kLong).sum().item<int64_t>());
  }
  return sums;
}

TEST(RealImages, BatchesOfPhotosAreTheSameForAnyNumberOfWorkers) {
  TERN_REQUIRE_DATA(folder);
  const auto clothing = unpacked(folder / "clothing/clothing.tar");
  const auto report = verify_images(clothing / "validation");
  EXPECT_EQ(report.checked, 341);
  EXPECT_TRUE(report.bad.empty());
  std::vector<int64_t> expected;
  for (const int64_t workers : {0, 1, 8}) {
    const DataBunch data = ImageDataBunch::from_folder(
        clothing / "validation",
        {.size = ImageSize{96, 96},
         .transforms = get_transforms(),
         .resize = ResizeMethod::crop,
         .workers = workers});
    EXPECT_EQ(data.classes.size(), 10u);
    const auto sums = sums_of(*data.train);
    EXPECT_TRUE(expected.empty() || sums == expected);
    expected = sums;
  }
}

TEST(RealImages, StreetScenesAreLoadedWithTheirMasks) {
  TERN_REQUIRE_DATA(folder);
  const auto camvid = unpacked(folder / "camvid/camvid_small.tar");
  const DataBlock block{
      .items = items_from_folder(camvid / "val"),
      .label = label_from_func([&](const ImageItem& item) {
        const std::filesystem::path path = item.path;
        return (camvid / "valannot" / path.filename()).string();
      }),
      .target = TargetKind::mask,
      .classes =
          {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}};
  const DataBunch data = block.bunch(
      {.size = ImageSize{90, 120},
       .transforms = get_transforms(),
       .batch_size = 8,
       .workers = 0});
  auto epoch = data.train->epoch(0);
  const auto batch = epoch.next();
  EXPECT_EQ(batch->targets[0].sizes(), (std::vector<int64_t>{8, 90, 120}));
  EXPECT_LE(batch->targets[0].max().item<int64_t>(), 11);
  // Only a small part of a street scene is void.
  EXPECT_LT(
      batch->targets[0].eq(11).to(torch::kFloat).mean().item<double>(),
      0.3);
}

}  // namespace
}  // namespace tern::real_images_test
