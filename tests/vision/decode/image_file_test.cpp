#include "tern/vision/decode/image_file.h"

#include <algorithm>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::image_file_test {
namespace {

std::string error_for(const std::filesystem::path& path) {
  ScratchBuffer buffer;
  return error_of<DataError>([&] { read_image_file(path.string(), buffer); });
}

TEST(ImageFile, ReadsAllBytesIntoTheBuffer) {
  const TempFolder temp;
  std::vector<uint8_t> content(100'000);
  for (size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<uint8_t>(i * 7);
  }
  write_file(temp / "a.png", content);
  ScratchBuffer buffer;
  const auto bytes = read_image_file((temp / "a.png").string(), buffer);
  EXPECT_TRUE(
      std::equal(bytes.begin(), bytes.end(), content.begin(), content.end()));
}

TEST(ImageFile, ReusesTheMemoryOfTheBuffer) {
  const TempFolder temp;
  write_file(temp / "a.png", "first");
  write_file(temp / "b.png", "second");
  ScratchBuffer buffer;
  const auto* first = read_image_file((temp / "a.png").string(), buffer).data();
  EXPECT_EQ(read_image_file((temp / "b.png").string(), buffer).data(), first);
}

TEST(ImageFile, NamesAMissingFileAndTheReason) {
  const TempFolder temp;
  const std::string error = error_for(temp / "gone.jpg");
  EXPECT_NE(error.find("gone.jpg"), std::string::npos) << error;
  EXPECT_NE(error.find("No such file"), std::string::npos) << error;
}

TEST(ImageFile, RejectsAFolderNamedLikeAnImage) {
  const TempFolder temp;
  std::filesystem::create_directory(temp / "x.jpg");
  const std::string error = error_for(temp / "x.jpg");
  EXPECT_NE(error.find("x.jpg: is a folder"), std::string::npos) << error;
  EXPECT_NE(error.find("Remove or rename"), std::string::npos) << error;
}

TEST(ImageFile, RejectsAPipeWithoutBlocking) {
  const TempFolder temp;
  ASSERT_EQ(::mkfifo((temp / "x.png").c_str(), 0600), 0);
  EXPECT_NE(error_for(temp / "x.png").find("is a pipe"), std::string::npos);
}

TEST(ImageFile, RejectsALinkToAnEndlessDevice) {
  const TempFolder temp;
  std::filesystem::create_symlink("/dev/zero", temp / "x.png");
  EXPECT_NE(error_for(temp / "x.png").find("is a device"), std::string::npos);
}

TEST(ImageFile, RejectsMoreBytesThanAllowed) {
  const TempFolder temp;
  write_file(temp / "a.png", "123456789");
  ScratchBuffer buffer;
  expect_error<DataError>(
      [&] { read_image_file((temp / "a.png").string(), buffer, 8); },
      {"has 9 bytes, more than the limit of 8"});
  EXPECT_NO_THROW(read_image_file((temp / "a.png").string(), buffer, 9));
}

}  // namespace
}  // namespace tern::image_file_test
