#include <gtest/gtest.h>

#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/tests/vision/tiff_file.h"
#include "tern/vision/datasets/bad_images.h"

namespace tern::verify_images_test {
namespace {

/// Writes four good images and two bad ones.
void write_folder(const TempFolder& temp) {
  for (int i = 0; i < 4; ++i) {
    write_image(temp / "a" / (std::to_string(i) + ".png"));
  }
  std::vector<uint8_t> cut = encode(random_image(50, 50), ".jpg");
  cut.resize(cut.size() / 2);
  write_file(temp / "a/cut.jpg", cut);
  make_folders(temp / "b/deep");
  write_file(temp / "b/deep/page.png", std::string("<html>"));
}

TEST(VerifyImages, ListsImagesThatCannotBeDecoded) {
  const TempFolder temp;
  write_folder(temp);
  for (const int64_t workers : {1, 3}) {
    const ImageReport report = verify_images(temp.path(), {.workers = workers});
    EXPECT_EQ(report.checked, 6);
    EXPECT_EQ(report.removed, 0);
    ASSERT_EQ(report.bad.size(), 2u);
    EXPECT_EQ(report.bad[0].path, (temp / "a/cut.jpg").string());
    EXPECT_NE(report.bad[0].reason.find("truncated"), std::string::npos);
    EXPECT_NE(report.bad[1].reason.find("not an image"), std::string::npos);
  }
}

TEST(VerifyImages, FindsATruncatedTiffAfterAWholeOneOfTheSameSize) {
  const TempFolder temp;
  std::vector<uint8_t> bytes =
      read_tiff_file(encode(
                         random_image(32, 32),
                         ".tiff",
                         {cv::IMWRITE_TIFF_COMPRESSION, 1}))
          .bytes();
  write_file(temp / "1.tif", bytes);
  for (const size_t size : {bytes.size() - 1, size_t{60}}) {
    bytes.resize(size);
    write_file(temp / "2.tif", bytes);
    const ImageReport report = verify_images(temp.path(), {.workers = 1});
    ASSERT_EQ(report.bad.size(), 1u);
    EXPECT_EQ(report.bad[0].path, (temp / "2.tif").string());
    EXPECT_NE(report.bad[0].reason.find("truncated"), std::string::npos);
  }
}

TEST(VerifyImages, AcceptsWhatTheDatasetsDecodeOptionsAccept) {
  const TempFolder temp;
  write_file(temp / "large.png", encode(random_image(40, 50), ".png"));
  EXPECT_TRUE(verify_images(temp.path()).bad.empty());
  const ImageReport report =
      verify_images(temp.path(), {.decode = {.max_pixels = 40 * 50 - 1}});
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_NE(report.bad[0].reason.find("max_pixels"), std::string::npos);
  EXPECT_TRUE(verify_images(temp.path(), {.decode = {.max_pixels = 40 * 50}})
                  .bad.empty());
}

TEST(VerifyImages, RemovesThemOnRequest) {
  const TempFolder temp;
  write_folder(temp);
  EXPECT_EQ(verify_images(temp.path(), {.remove = true}).removed, 2);
  const ImageReport again = verify_images(temp.path());
  EXPECT_EQ(again.checked, 4);
  EXPECT_TRUE(again.bad.empty());
}

}  // namespace
}  // namespace tern::verify_images_test
