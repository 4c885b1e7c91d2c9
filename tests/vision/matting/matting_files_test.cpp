#include <algorithm>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/matting/scenes.h"
#include "tern/vision/matting/matting_dataset.h"

namespace tern::matting_files_test {
namespace {

using namespace testing_support;  // NOLINT
namespace fs = std::filesystem;

TEST(MattingFiles, PairsImagesByNameAcrossFormats) {
  const Scenes scenes(0, 1);
  const torch::Tensor alpha = Scenes::disc(20);
  // In byte order "a-b.png" precedes "a.png", but follows "a".
  for (const char* name : {"a.png", "a-b.png", "deep/c.png"}) {
    scenes.write(std::string("pairs/pha/") + name, alpha);
  }
  for (const char* name : {"a.PNG", "a-b.jpg", "deep/c.webp"}) {
    scenes.write(std::string("pairs/fgr/") + name, Scenes::colors(alpha));
  }
  const MattingFiles files =
      find_matting_files(scenes.pairs(), scenes.backgrounds());
  ASSERT_EQ(files.pha.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fs::path(files.pha[i]).stem(), fs::path(files.fgr[i]).stem());
  }
  check_matting_files(files);
}

TEST(MattingFiles, NamesAnImageWithoutAPartner) {
  const Scenes scenes;
  fs::remove(scenes / "pairs/fgr/2.png");
  expect_error<DataError>(
      [&] { find_matting_files(scenes.pairs(), scenes.backgrounds()); },
      {"pha/2.png", "has no counterpart", "there are 4", "and 3 there"});
  scenes.write("pairs/fgr/2.png", Scenes::colors(Scenes::disc(22)));
  fs::remove(scenes / "pairs/pha/0.png");
  expect_error<DataError>(
      [&] { find_matting_files(scenes.pairs(), scenes.backgrounds()); },
      {"fgr/0.png", "has no counterpart"});
}

TEST(MattingFiles, NamesTwoImagesWithTheSameName) {
  const Scenes scenes;
  scenes.write("pairs/pha/2.webp", Scenes::disc(22));
  expect_error<DataError>(
      [&] { find_matting_files(scenes.pairs(), scenes.backgrounds()); },
      {"pha/2.webp", "has the name of", "pha/2.png"});
}

TEST(MattingFiles, RejectsAnEmptyOrMissingFolder) {
  const Scenes scenes(2, 0);
  fs::create_directories(scenes.backgrounds());
  expect_error<DataError>(
      [&] { find_matting_files(scenes.pairs(), scenes.backgrounds()); },
      {"backgrounds: has no image", "photos of backgrounds"});
  expect_error<DataError>(
      [&] { find_matting_files(scenes / "nowhere", scenes.backgrounds()); },
      {"nowhere/pha"});
}

TEST(MattingFiles, RejectsPairsOfDifferentSizes) {
  const Scenes scenes;
  scenes.write("pairs/pha/1.png", Scenes::disc(30));
  const MattingFiles files =
      find_matting_files(scenes.pairs(), scenes.backgrounds());
  expect_error<DataError>(
      [&] { check_matting_files(files); },
      {"pha/1.png: is an alpha of 30 x 34", "fgr/1.png has 21 x 25"});
}

TEST(MattingFiles, RejectsAColoredAlpha) {
  const Scenes scenes;
  const torch::Tensor alpha = Scenes::disc(21);
  scenes.write("pairs/pha/1.png", Scenes::colors(alpha));
  const MattingFiles files =
      find_matting_files(scenes.pairs(), scenes.backgrounds());
  expect_error<DataError>(
      [&] { check_matting_files(files); },
      {"pha/1.png: has colors", "swapped"});
  // Gray stored as color is accepted.
  scenes.write("pairs/pha/1.png", torch::stack({alpha, alpha, alpha}, 2));
  check_matting_files(files);
}

TEST(MattingFiles, RejectsDifferentNumbersOfAlphasAndForegrounds) {
  const Scenes scenes;
  MattingFiles files = find_matting_files(scenes.pairs(), scenes.backgrounds());
  files.fgr.pop_back();
  expect_error<DataError>(
      [&] { check_matting_files(files); },
      {"[MattingDataset]", "4 alphas, 3 foregrounds and 5 backgrounds"});
}

TEST(MattingFiles, SplitsKeepPairsTogether) {
  const Scenes scenes(10, 20);
  const MattingFiles files =
      find_matting_files(scenes.pairs(), scenes.backgrounds());
  const auto [train, valid] = split_matting_files(files, 0.2, 42);
  EXPECT_EQ(train.pha.size(), 8u);
  EXPECT_EQ(valid.pha.size(), 2u);
  EXPECT_EQ(valid.bgr.size(), 4u);
  for (const MattingFiles* side : {&train, &valid}) {
    for (size_t i = 0; i < side->pha.size(); ++i) {
      EXPECT_EQ(
          fs::path(side->pha[i]).filename(),
          fs::path(side->fgr[i]).filename());
    }
  }
  for (const std::string& path : valid.bgr) {
    EXPECT_EQ(std::count(train.bgr.begin(), train.bgr.end(), path), 0);
  }
  expect_error<c10::ValueError>(
      [&] { split_matting_files(files, 0.05, 42); },
      {"valid_pct is 0.05"});
}

}  // namespace
}  // namespace tern::matting_files_test
