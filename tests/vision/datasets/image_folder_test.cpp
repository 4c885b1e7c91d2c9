#include "tern/vision/datasets/image_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::image_folder_test {
namespace {

namespace fs = std::filesystem;

void touch(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path);
}

std::string error_for(
    const fs::path& root,
    const ImageFolderOptions& options = {}) {
  return error_of<DataError>([&] { scan_image_folder(root, options); });
}

std::vector<std::string> names(
    const ImageFolder& images,
    const fs::path& root) {
  std::vector<std::string> relative;
  for (const std::string& path : images.paths) {
    relative.push_back(fs::path(path).lexically_relative(root).string());
  }
  return relative;
}

using Names = std::vector<std::string>;

TEST(ImageFolder, SortsClassesAndFilesByName) {
  const TempFolder temp;
  for (const char* name : {"b/2.png", "a/10.png", "b/1.png", "a/9.png"}) {
    touch(temp / name);
  }
  const ImageFolder images = scan_image_folder(temp.path());
  EXPECT_EQ(images.classes, (Names{"a", "b"}));
  EXPECT_EQ(
      names(images, temp.path()),
      (Names{"a/10.png", "a/9.png", "b/1.png", "b/2.png"}));
  EXPECT_EQ(images.labels, (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(ImageFolder, AcceptsOnlyImageSuffixesInUpperOrLowerCase) {
  const TempFolder temp;
  for (const char* name :
       {"a/1.PNG", "a/2.JpEg", "a/3.webp", "a/4.txt", "a/5", "a/Thumbs.db"}) {
    touch(temp / name);
  }
  EXPECT_EQ(
      names(scan_image_folder(temp.path()), temp.path()),
      (Names{"a/1.PNG", "a/2.JpEg", "a/3.webp"}));
}

TEST(ImageFolder, IgnoresHiddenFiles) {
  const TempFolder temp;
  for (const char* name :
       {"a/1.png", "a/._1.png", ".git/2.png", "a/.cache/3.png", "top.png"}) {
    touch(temp / name);
  }
  const ImageFolder images = scan_image_folder(temp.path());
  EXPECT_EQ(images.classes, Names{"a"});
  EXPECT_EQ(names(images, temp.path()), Names{"a/1.png"});
}

TEST(ImageFolder, LabelsNestedFoldersByTheirClass) {
  const TempFolder temp;
  for (const char* name : {"a/x/y/1.png", "a/2.png", "b/z/3.png"}) {
    touch(temp / name);
  }
  const ImageFolder images = scan_image_folder(temp.path());
  EXPECT_EQ(
      names(images, temp.path()),
      (Names{"a/2.png", "a/x/y/1.png", "b/z/3.png"}));
  EXPECT_EQ(images.labels, (std::vector<int64_t>{0, 0, 1}));
}

TEST(ImageFolder, KeepsFileNamesWithAnyBytes) {
  const TempFolder temp;
  const std::string name = "a/-\xff \n\xf0\x9f\x90\xa6.png";
  touch(temp / name);
  EXPECT_EQ(names(scan_image_folder(temp.path()), temp.path()), Names{name});
}

TEST(ImageFolder, KeepsTheGivenLabels) {
  const TempFolder temp;
  touch(temp / "c/1.png");
  const ImageFolder images =
      scan_image_folder(temp.path(), {.classes = {"a", "b", "c"}});
  EXPECT_EQ(images.classes, (Names{"a", "b", "c"}));
  EXPECT_EQ(images.labels, std::vector<int64_t>{2});
}

TEST(ImageFolder, NamesAClassThatIsMissingInTraining) {
  const TempFolder temp;
  touch(temp / "d/1.png");
  const std::string error = error_for(temp.path(), {.classes = {"a", "b"}});
  EXPECT_NE(error.find("/d: is a class that"), std::string::npos) << error;
  EXPECT_NE(error.find("(a, b)"), std::string::npos) << error;
}

TEST(ImageFolder, NamesAnEmptyClassUnlessAllowed) {
  const TempFolder temp;
  touch(temp / "a/1.png");
  touch(temp / "b/readme.txt");
  const std::string error = error_for(temp.path());
  EXPECT_NE(error.find("/b: has no images"), std::string::npos) << error;
  EXPECT_NE(error.find("allow_empty"), std::string::npos) << error;
  const ImageFolder images =
      scan_image_folder(temp.path(), {.allow_empty = true});
  EXPECT_EQ(images.classes, (Names{"a", "b"}));
  EXPECT_EQ(images.paths.size(), 1);
}

TEST(ImageFolder, NamesAMissingFolderAndWhatWasExpected) {
  const TempFolder temp;
  const std::string error = error_for(temp / "gone");
  EXPECT_NE(error.find("gone: there is no such folder"), std::string::npos);
  EXPECT_NE(error.find("for each class"), std::string::npos) << error;
  touch(temp / "file");
  EXPECT_NE(
      error_for(temp / "file").find("is not a folder"),
      std::string::npos);
}

TEST(ImageFolder, NamesAFolderWithoutClasses) {
  const TempFolder temp;
  touch(temp / "1.png");
  const std::string error = error_for(temp.path());
  EXPECT_NE(error.find("contains no folders"), std::string::npos) << error;
}

TEST(ImageFolder, RejectsFoldersAndPipesNamedLikeImages) {
  const TempFolder temp;
  fs::create_directories(temp / "a/x.jpg");
  EXPECT_NE(
      error_for(temp.path()).find("a/x.jpg: is a folder"),
      std::string::npos);
  const TempFolder other;
  fs::create_directory(other / "a");
  ASSERT_EQ(::mkfifo((other / "a/x.png").c_str(), 0600), 0);
  EXPECT_NE(
      error_for(other.path()).find("a/x.png: is a pipe"),
      std::string::npos);
}

TEST(ImageFolder, VisitsEachFolderOnceDespiteCyclicLinks) {
  const TempFolder temp;
  touch(temp / "a/1.png");
  touch(temp / "b/deep/2.png");
  fs::create_directory_symlink(temp.path(), temp / "a/all");
  fs::create_directory_symlink(temp / "b", temp / "a/other");
  fs::create_directory_symlink("..", temp / "b/deep/up");
  const ImageFolder images = scan_image_folder(temp.path());
  EXPECT_EQ(names(images, temp.path()), (Names{"a/1.png", "b/deep/2.png"}));
  EXPECT_EQ(images.labels, (std::vector<int64_t>{0, 1}));
}

TEST(ImageFolder, RejectsAClassThatLinksToAnotherClass) {
  const TempFolder temp;
  touch(temp / "a/1.png");
  fs::create_directory_symlink(temp / "a", temp / "b");
  EXPECT_NE(
      error_for(temp.path()).find("/b: is a link to a folder that"),
      std::string::npos);
}

TEST(ImageFolder, SkipsBrokenLinks) {
  const TempFolder temp;
  touch(temp / "a/1.png");
  fs::create_symlink("gone.png", temp / "a/2.png");
  const ImageFolder images = scan_image_folder(temp.path());
  EXPECT_EQ(images.paths.size(), 1);
  EXPECT_EQ(images.dangling_links, Names{(temp / "a/2.png").string()});
}

TEST(ImageFolder, FollowsLinksOutsideOnlyWhenAllowed) {
  const TempFolder temp, outside;
  touch(outside / "x/1.png");
  touch(temp / "a/0.png");
  fs::create_symlink(outside / "x/1.png", temp / "a/1.png");
  const std::string error = error_for(temp.path());
  EXPECT_NE(error.find("a/1.png: is a link to"), std::string::npos) << error;
  EXPECT_NE(error.find("links_outside"), std::string::npos) << error;
  EXPECT_EQ(
      scan_image_folder(temp.path(), {.links_outside = true}).paths.size(),
      2);
  EXPECT_EQ(
      scan_image_folder(temp.path(), {.boundary = temp.path().parent_path()})
          .paths.size(),
      2);
}

}  // namespace
}  // namespace tern::image_folder_test
