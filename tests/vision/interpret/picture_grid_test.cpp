#include "tern/vision/interpret/picture_grid.h"

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/interpret/drawing.h"

namespace tern::picture_grid_test {
namespace {

using testing_support::has_color;

torch::Tensor plain(int64_t height, int64_t width, int value, int64_t c = 3) {
  return torch::full({height, width, c}, value, torch::kByte);
}

TEST(PictureGrid, PutsPicturesInRowsAndColumns) {
  std::vector<Picture> pictures;
  pictures.reserve(5);
  for (int i = 0; i < 5; ++i) pictures.push_back({plain(8, 8, 40 * i), {}});
  const torch::Tensor page = picture_grid(pictures, {.columns = 3, .tile = 40});
  EXPECT_EQ(page.size(2), 3);
  EXPECT_GT(page.size(1), 3 * 40);
  EXPECT_LT(page.size(1), 4 * 40 + 40);
  for (int i = 0; i < 5; ++i) {
    const auto level = static_cast<uint8_t>(40 * i);
    EXPECT_TRUE(has_color(page, {level, level, level})) << i;
  }
}

TEST(PictureGrid, IsAboutAsWideAsHighWithoutANumberOfColumns) {
  const std::vector<Picture> pictures(9, {plain(4, 4, 0), {}});
  const torch::Tensor page = picture_grid(pictures, {.tile = 64});
  EXPECT_NEAR(
      static_cast<double>(page.size(0)) / static_cast<double>(page.size(1)),
      1,
      0.1);
}

TEST(PictureGrid, FitsPicturesOfAnyShapeIntoTheirTile) {
  for (const auto& [height, width] :
       {std::pair{1, 300}, {300, 1}, {7, 3}, {1000, 600}}) {
    const torch::Tensor page =
        picture_grid({{plain(height, width, 9, 1), {}}}, {.tile = 50});
    EXPECT_LT(page.size(0), 90);
    EXPECT_LT(page.size(1), 90);
    EXPECT_TRUE(has_color(page, {9, 9, 9}));
  }
}

TEST(PictureGrid, WritesCaptionsInTheirColours) {
  const std::vector<CaptionLine> caption = {
      {"right", kRightColor},
      {"wrong", kWrongColor}};
  const torch::Tensor page =
      picture_grid({{plain(8, 8, 255), caption}}, {.title = "title"});
  EXPECT_TRUE(has_color(page, kTextColor));
  EXPECT_TRUE(has_color(page, kRightColor));
  EXPECT_TRUE(has_color(page, kWrongColor));
}

TEST(PictureGrid, CutsTextThatIsTooLongInItsMiddle) {
  const std::string text = "photographs/jackets/0123456789abcdef-front.jpeg";
  const std::string cut = fit_text(text, 120);
  EXPECT_LE(Page::text_width(cut), 120);
  EXPECT_EQ(cut.substr(0, 5), "photo");
  EXPECT_NE(cut.find(".."), std::string::npos);
  EXPECT_EQ(cut.substr(cut.size() - 4), "jpeg");
  EXPECT_EQ(fit_text("short", 120), "short");
}

TEST(PictureGrid, WritesAMarkForWhatIsNoAscii) {
  EXPECT_EQ(fit_text("M\xc3\xbctze \xf0\x9f\x91\x92\n\xff", 500), "M?tze ???");
}

TEST(PictureGrid, RefusesWhatIsNoPicture) {
  expect_error<c10::ValueError>([] { picture_grid({}); }, {"0 pictures"});
  expect_error<c10::ValueError>(
      [] {
        picture_grid({{torch::rand({5, 8, 8}), {}}});
      },
      {"[picture_grid]", "[H, W, 1 or 3] kByte"});
  expect_error<c10::ValueError>(
      [] {
        picture_grid({{plain(4, 4, 0), {}}}, {.tile = 3});
      },
      {"tiles of 3 pixels"});
}

}  // namespace
}  // namespace tern::picture_grid_test
