#include <cstdlib>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/bad_images.h"

namespace tern::image_manifest_test {
namespace {

class ImageManifestTest : public testing::Test {
 protected:
  ImageManifestTest() {
    write_image(temp_ / "photos/a.png");
    write_image(temp_ / "photos/deep/er/b.png");
    write_file(temp_ / "photos/c.jpg", encode(random_image(20, 30), ".jpg"));
  }
  std::vector<BadImage> check() const {
    return check_image_manifest(temp_ / "photos", temp_ / "list.sha256");
  }
  int64_t write() const {
    return write_image_manifest(temp_ / "photos", temp_ / "list.sha256");
  }

  TempFolder temp_;
};

TEST_F(ImageManifestTest, ReportsNothingForUnchangedFiles) {
  EXPECT_EQ(write(), 3);
  EXPECT_TRUE(check().empty());
}

TEST_F(ImageManifestTest, IsReadableBySha256sum) {
  write_image(temp_ / "photos/back\\slash\nand line.png");
  write();
  const std::string command = "cd '" + (temp_ / "photos").string() +
                              "' && sha256sum --quiet --strict -c "
                              "../list.sha256";
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT
  EXPECT_TRUE(check().empty());
}

// Row I26: the decoder accepts most of them and returns different pixels.
TEST_F(ImageManifestTest, FindsEveryFlippedBitOfAJpeg) {
  write();
  const std::vector<uint8_t> whole = read_file(temp_ / "photos/c.jpg");
  int seen_by_decoder = 0;
  const size_t bits = whole.size() * 8;
  for (size_t bit = 3; bit < bits; bit += bits / 60) {
    std::vector<uint8_t> bytes = whole;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    write_file(temp_ / "photos/c.jpg", bytes);
    const std::vector<BadImage> bad = check();
    ASSERT_EQ(bad.size(), 1u) << bit;
    EXPECT_EQ(bad[0].path, (temp_ / "photos/c.jpg").string());
    EXPECT_EQ(bad[0].reason, "has changed since the manifest was written");
    seen_by_decoder +=
        static_cast<int>(verify_images(temp_ / "photos").bad.size());
  }
  EXPECT_LT(seen_by_decoder, 50);
}

TEST_F(ImageManifestTest, NamesMissingAndNewFiles) {
  write();
  std::filesystem::remove(temp_ / "photos/deep/er/b.png");
  write_image(temp_ / "photos/new.png");
  const std::vector<BadImage> bad = check();
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].path, (temp_ / "photos/deep/er/b.png").string());
  EXPECT_EQ(bad[0].reason, "is missing");
  EXPECT_EQ(bad[1].reason, "is not in the manifest");
}

TEST_F(ImageManifestTest, NamesALineWithoutAHash) {
  for (const char* text :
       {"nonsense\n",
        "0123  a.png\n",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  "
        "a"}) {
    write_file(temp_ / "list.sha256", std::string(text));
    expect_error<DataError>([&] { check(); }, {"list.sha256", "line 1"});
  }
}

}  // namespace
}  // namespace tern::image_manifest_test
