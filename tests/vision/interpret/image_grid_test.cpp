#include "tern/vision/interpret/image_grid.h"

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/interpret/drawing.h"

namespace tern::image_grid_test {
namespace {

using testing_support::has_color;

torch::Tensor plain(int64_t height, int64_t width, int value, int64_t c = 3) {
  return torch::full({height, width, c}, value, torch::kByte);
}

TEST(ImageGrid, ArrangesImagesInRowsAndColumns) {
  std::vector<Picture> pictures;
  pictures.reserve(5);
  for (int i = 0; i < 5; ++i) pictures.push_back({plain(8, 8, 40 * i), {}});
  const torch::Tensor page = image_grid(pictures, {.columns = 3, .tile = 40});
  EXPECT_EQ(page.size(2), 3);
  EXPECT_GT(page.size(1), 3 * 40);
  EXPECT_LT(page.size(1), 4 * 40 + 40);
  for (int i = 0; i < 5; ++i) {
    const auto level = static_cast<uint8_t>(40 * i);
    EXPECT_TRUE(has_color(page, {level, level, level})) << i;
  }
}

TEST(ImageGrid, IsRoughlySquareByDefault) {
  const std::vector<Picture> pictures(9, {plain(4, 4, 0), {}});
  const torch::Tensor page = image_grid(pictures, {.tile = 64});
  EXPECT_NEAR(
      static_cast<double>(page.size(0)) / static_cast<double>(page.size(1)),
      1,
      0.1);
}

TEST(ImageGrid, FitsImagesOfAnyShapeIntoTheirTile) {
  for (const auto& [height, width] :
       {std::pair{1, 300}, {300, 1}, {7, 3}, {1000, 600}}) {
    const torch::Tensor page =
        image_grid({{plain(height, width, 9, 1), {}}}, {.tile = 50});
    EXPECT_LT(page.size(0), 90);
    EXPECT_LT(page.size(1), 90);
    EXPECT_TRUE(has_color(page, {9, 9, 9}));
  }
}

TEST(ImageGrid, DrawsCaptionsInTheirColors) {
  const std::vector<CaptionLine> caption = {
      {"right", kRightColor},
      {"wrong", kWrongColor}};
  const torch::Tensor page =
      image_grid({{plain(8, 8, 255), caption}}, {.title = "title"});
  EXPECT_TRUE(has_color(page, kTextColor));
  EXPECT_TRUE(has_color(page, kRightColor));
  EXPECT_TRUE(has_color(page, kWrongColor));
}

TEST(ImageGrid, DrawsALegendBelowTheImages) {
  const std::vector<Picture> pictures = {{plain(8, 8, 255), {}}};
  const torch::Tensor without = image_grid(pictures, {.tile = 40});
  const torch::Tensor page =
      image_grid(pictures, {.tile = 40, .legend = {{"cat", {200, 30, 40}}}});
  EXPECT_GT(page.size(0), without.size(0));
  EXPECT_TRUE(has_color(page.slice(0, without.size(0)), {200, 30, 40}));
}

TEST(ImageGrid, WrapsALongCaptionWithinItsTile) {
  const auto page = [](const std::string& text) {
    return image_grid({{plain(8, 8, 0), {{text}}}}, {.tile = 100});
  };
  const torch::Tensor short_one = page("short");
  const torch::Tensor long_one = page("photographs/jackets/front_view.jpeg");
  EXPECT_EQ(long_one.size(1), short_one.size(1));
  EXPECT_GT(long_one.size(0), short_one.size(0) + 20);
  // The margins stay white.
  EXPECT_EQ(long_one.narrow(1, 0, 8).min().item<int>(), 255);
  EXPECT_EQ(long_one.narrow(1, long_one.size(1) - 8, 8).min().item<int>(), 255);
}

TEST(ImageGrid, DrawsNonLatinLetters) {
  const auto page = [](const std::string& text) {
    return image_grid({{plain(8, 8, 0), {{text}}}}, {});
  };
  EXPECT_FALSE(torch::equal(page("höher"), page("hüher")));
  EXPECT_FALSE(torch::equal(page("α"), page("β")));
}

TEST(ImageGrid, LeavesNoSpaceAboveWideImages) {
  const torch::Tensor page =
      image_grid({{plain(10, 100, 0), {}}, {plain(20, 100, 0), {}}}, {});
  EXPECT_LT(page.size(0), 100);
}

TEST(ImageGrid, RejectsInvalidImages) {
  expect_error<c10::ValueError>([] { image_grid({}); }, {"0 images"});
  expect_error<c10::ValueError>(
      [] {
        image_grid({{torch::rand({5, 8, 8}), {}}});
      },
      {"[image_grid]", "[H, W, 1 or 3] kByte"});
  expect_error<c10::ValueError>(
      [] {
        image_grid({{plain(4, 4, 0), {}}}, {.tile = 3});
      },
      {"tiles of 3 pixels"});
}

TEST(ImageGrid, DrawsBoxNamesOnStripsOfTheBoxColor) {
  const torch::Tensor white = torch::full({100, 100, 3}, 255, torch::kByte);
  const Rgb color = {190, 0, 50};
  const Picture picture{
      .image = white,
      .boxes = {
          {20, 40, 60, 80, "a long name", color},
          {20, 0, 60, 30, "at the edge", color}}};
  const torch::Tensor grid = image_grid({picture}, {.tile = 100});
  constexpr int64_t kMargin = 14;
  const torch::Tensor wanted = torch::tensor({190, 0, 50}, torch::kByte);
  // The name is above the first box. It is inside the second, of which only the
  // outline is above the image.
  for (const int64_t row : {40 - 11, 40 - 4, 2, 9}) {
    EXPECT_TRUE(grid[kMargin + row][kMargin + 21].equal(wanted)) << row;
  }
  const torch::Tensor above = grid.narrow(0, 0, kMargin - 2);
  EXPECT_TRUE(above.eq(255).all().item<bool>());
}

}  // namespace
}  // namespace tern::image_grid_test
