#include "tern/vision/datasets/image_pack.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::image_pack_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes pixels_of(int64_t count, int start) {
  Bytes pixels(static_cast<size_t>(count));
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(start + static_cast<int>(i) * 7);
  }
  return pixels;
}

/// Writes three images; the second is missing.
void write_pack(const std::filesystem::path& file) {
  ImagePackWriter writer(file, 3, 3, "key");
  writer.write(2, 4, 5, pixels_of(60, 1).data());
  writer.write(0, 2, 3, pixels_of(18, 9).data());
  writer.publish();
}

TEST(ImagePack, ReadsBackWhatWasWritten) {
  const TempFolder temp;
  write_pack(temp / "cache/a.pack");
  const auto pack = ImagePack::open(temp / "cache/a.pack");
  EXPECT_EQ(pack->size(), 3);
  EXPECT_EQ(pack->channels(), 3);
  EXPECT_EQ(pack->key().substr(0, 3), "key");
  EXPECT_FALSE(pack->has(1));
  const PixelView image = pack->image(2);
  EXPECT_EQ(image.height, 4);
  EXPECT_EQ(image.width, 5);
  const Bytes expected = pixels_of(60, 1);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), image.pixels));
  EXPECT_EQ(pack->image(0).pixels[17], pixels_of(18, 9)[17]);
}

TEST(ImagePack, LeavesNoFileBehindIfWritingIsNotFinished) {
  const TempFolder temp;
  {
    ImagePackWriter writer(temp / "a.pack", 1, 3, "key");
    writer.write(0, 2, 3, pixels_of(18, 9).data());
  }
  EXPECT_EQ(temp.entries(), 0);
}

TEST(ImagePack, DetectsEveryFlippedBitAndEveryTruncation) {
  const TempFolder temp;
  const auto file = temp / "a.pack";
  write_pack(file);
  const Bytes bytes = read_file(file);
  const auto use = [&] {
    const auto pack = ImagePack::open(file);
    for (const int64_t index : {0, 2}) {
      pack->image(index);
    }
  };
  EXPECT_NO_THROW(use());
  for (size_t at = 0; at < bytes.size(); ++at) {
    Bytes damaged = bytes;
    damaged[at] ^= 0x20;
    write_file(file, damaged);
    EXPECT_THROW(use(), DataError) << at;
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_file(file, std::span(bytes).first(size));
    EXPECT_THROW(use(), DataError) << size;
  }
}

TEST(ImagePack, ErrorForADamagedFileNamesTheRemedy) {
  const TempFolder temp;
  write_file(temp / "a.pack", std::string(200, 'x'));
  expect_error<DataError>(
      [&] { ImagePack::open(temp / "a.pack"); },
      {"a.pack", "damaged image pack", "Remove it"});
  EXPECT_THROW(ImagePack::open(temp / "none.pack"), IoError);
}

}  // namespace
}  // namespace tern::image_pack_test
