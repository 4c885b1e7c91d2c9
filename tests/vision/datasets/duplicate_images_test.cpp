#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/bad_images.h"
#include "tern/vision/image_data_bunch.h"

namespace tern::duplicate_images_test {
namespace {

namespace fs = std::filesystem;

class DuplicateImagesTest : public testing::Test {
 protected:
  DuplicateImagesTest() {
    write_image(temp_ / "train/cat/1.png", 8, 8);
    write_image(temp_ / "train/cat/2.png", 9, 9);
    write_image(temp_ / "train/dog/3.png", 10, 10);
    write_image(temp_ / "valid/cat/4.png", 12, 8);
    write_image(temp_ / "valid/dog/5.png", 13, 8);
  }
  std::string path(const std::string& name) { return (temp_ / name).string(); }

  TempFolder temp_;
};

TEST_F(DuplicateImagesTest, FindsCopiesHardLinksAndSymbolicLinks) {
  fs::copy_file(path("train/cat/1.png"), path("valid/cat/copy.png"));
  fs::create_hard_link(path("train/cat/2.png"), path("valid/cat/hard.png"));
  fs::create_symlink(path("train/dog/3.png"), path("valid/dog/soft.png"));
  const auto found = duplicate_images(
      {path("train/cat/1.png"),
       path("train/cat/2.png"),
       path("train/dog/3.png")},
      {path("valid/cat/4.png"),
       path("valid/cat/copy.png"),
       path("valid/cat/hard.png"),
       path("valid/dog/soft.png")});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].valid, path("valid/cat/copy.png"));
  EXPECT_EQ(found[0].train, path("train/cat/1.png"));
  EXPECT_FALSE(found[0].is_link);
  EXPECT_EQ(found[1].train, path("train/cat/2.png"));
  EXPECT_TRUE(found[1].is_link);
  EXPECT_EQ(found[2].train, path("train/dog/3.png"));
  EXPECT_TRUE(found[2].is_link);
}

TEST_F(DuplicateImagesTest, ComparesTheBytesOfFilesWithEqualSizes) {
  const std::string text = "1234";
  write_file(temp_ / "a", text);
  write_file(temp_ / "b", std::string("1235"));
  EXPECT_TRUE(duplicate_images({path("a")}, {path("b")}).empty());
}

TEST_F(DuplicateImagesTest, DataBunchReportsThemOnRequest) {
  fs::copy_file(path("train/cat/1.png"), path("valid/cat/copy.png"));
  std::vector<std::string> lines;
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .workers = 0,
      .sink = [&](const std::string& line) { lines.push_back(line); }};
  ImageDataBunch::from_folder(temp_.path(), options);
  EXPECT_TRUE(lines.empty());
  ImageDataBunchOptions telling = options;
  telling.report_duplicates = true;
  ImageDataBunch::from_folder(temp_.path(), telling);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("1 of the validation images"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[0].find("copy.png = "), std::string::npos) << lines[0];
}

TEST_F(DuplicateImagesTest, NamesAMissingFile) {
  expect_error<IoError>(
      [&] { duplicate_images({path("none.png")}, {}); },
      {"none.png"});
}

}  // namespace
}  // namespace tern::duplicate_images_test
