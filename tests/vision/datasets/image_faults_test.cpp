// Rows of the fault list that no other test covers.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <random>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/decode/decode.h"

namespace tern::image_faults_test {
namespace {

using namespace testing_support;  // NOLINT

// I01
TEST(ImageFaults, RejectsAnEmptyFileAndAWebPage) {
  const TempFolder temp;
  write_file(temp / "empty.jpg", std::string());
  write_file(temp / "page.jpg", std::string("<!DOCTYPE html><html>404</html>"));
  expect_error<DataError>(
      [&] { read_image((temp / "empty.jpg").string()); },
      {"empty.jpg", "empty"});
  expect_error<DataError>(
      [&] { read_image((temp / "page.jpg").string()); },
      {"page.jpg"});
}

// I05: libjpeg only warns; in training data it is an error.
TEST(ImageFaults, DamagedPixelsOfAJpegAreAnErrorUnlessLenient) {
  std::mt19937 random(3);
  const std::vector<uint8_t> whole = encode(random_image(64, 64), ".jpg");
  int seen = 0;
  for (int i = 0; i < 40; ++i) {
    std::vector<uint8_t> bytes = whole;
    // A marker among the pixels is certain to be detected by the decoder.
    const size_t at = bytes.size() / 2 + random() % (bytes.size() / 4);
    bytes[at] = 0xff;
    bytes[at + 1] = 0xd3;
    try {
      decode_image(bytes, "damaged.jpg");
    } catch (const DataError& error) {
      ++seen;
      EXPECT_NE(
          std::string(error.what()).find("damaged.jpg"),
          std::string::npos);
    }
    EXPECT_EQ(
        decode_image(bytes, "damaged.jpg", {.lenient = true}).size(0),
        64);
  }
  EXPECT_EQ(seen, 40);
}

// I14
TEST(ImageFaults, ThinImagesOfAnyFormatFitIntoABatch) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 3000}, {3000, 1}}) {
    for (const char* suffix : {".png", ".jpg", ".bmp"}) {
      paths.push_back(
          (temp / (std::to_string(paths.size()) + suffix)).string());
      write_file(paths.back(), encode(random_image(height, width), suffix));
    }
  }
  for (const ResizeMethod resize :
       {ResizeMethod::crop,
        ResizeMethod::pad,
        ResizeMethod::squish,
        ResizeMethod::none}) {
    const ImageDataset images(
        paths,
        std::vector<int64_t>(paths.size()),
        {.size = ImageSize{16, 16}, .sizing = {.resize = resize}});
    std::vector<int64_t> all(paths.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    EXPECT_EQ(images.get_batch(all, {}).inputs[0].size(0), 9);
  }
}

/// Writes an image below `depth` nested folders named `name`.
void write_deep(
    const std::filesystem::path& root,
    const std::string& name,
    int depth) {
  int folder = ::open(root.c_str(), O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(folder, name.c_str(), 0755), 0);
    const int next = ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY);
    ::close(folder);
    folder = next;
  }
  const std::vector<uint8_t> bytes = encode(random_image(8, 8), ".png");
  const int file = ::openat(folder, "a.png", O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(
      ::write(file, bytes.data(), bytes.size()),
      static_cast<ssize_t>(bytes.size()));
  ::close(file);
  ::close(folder);
}

// I18
TEST(ImageFaults, FindsAnImageAThousandFoldersDeep) {
  const TempFolder temp;
  write_deep(temp.path(), "d", 1000);
  const std::vector<std::string> paths = find_image_files(temp.path());
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(read_image(paths[0]).size(0), 8);
}

TEST(ImageFaults, RejectsANameLongerThanTheSystemAllows) {
  const TempFolder temp;
  write_deep(temp.path(), std::string(250, 'n'), 20);
  expect_error<IoError>(
      [&] { find_image_files(temp.path()); },
      {"nnnn", "too long"});
}

// I22 requires a million files in 10 s.
TEST(ImageFaults, ScansFiveThousandFilesQuickly) {
  if (std::getenv("TERN_EMULATOR")) GTEST_SKIP() << "an emulator is too slow";
  const TempFolder temp;
  make_folders(temp / "train/many");
  const int folder =
      ::open((temp / "train/many").c_str(), O_RDONLY | O_DIRECTORY);
  constexpr size_t kFiles = 5'000;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string name = std::to_string(i) + ".jpg";
    ::close(::openat(folder, name.c_str(), O_WRONLY | O_CREAT, 0644));
  }
  ::close(folder);
  // Scanning takes less time than reading the size of each file.
  double scan = 1e9, list = 1e9;
  for (int i = 0; i < 5; ++i) {
    keep_least(scan, [&] {
      EXPECT_EQ(scan_image_folder(temp / "train").paths.size(), kFiles);
    });
    keep_least(list, [&] {
      size_t files = 0;
      for (const auto& entry :
           std::filesystem::directory_iterator(temp / "train/many")) {
        files += entry.file_size() == 0;
      }
      EXPECT_EQ(files, kFiles);
    });
  }
  EXPECT_LT(scan, list);
}

/// Calls a function for each image.
class Doing final : public Transform {
 public:
  explicit Doing(std::function<void()> action) : action_(std::move(action)) {}
  void plan(SamplePlan&, SampleRng&) const override { action_(); }

 private:
  std::function<void()> action_;
};

// S07
TEST(ImageFaults, AnExceptionInATransformStopsFitAndNamesTheImage) {
  const Shades shades;
  for (const int64_t workers : {0, 2, 8}) {
    ImageDataBunchOptions options = {
        .stats = stats::none(),
        .transforms = {
            .train = {std::make_shared<Doing>(
                [] { throw std::out_of_range("no such color"); })},
            .valid = {}}};
    options.batch_size = 2;
    options.workers = workers;
    options.device = torch::kCPU;
    Learner learn(
        ImageDataBunch::from_folder(shades.path(), options),
        Shades::net(),
        quiet());
    expect_error<DataError>(
        [&] { learn.fit(1); },
        {"/train/", ".png", "no such color", "sample "});
  }
}

// S08
TEST(ImageFaults, AnImageThatNeverLoadsStopsFitAfterTheTimeout) {
  const Shades shades;
  std::atomic<bool> is_stuck = false, release = false;
  ImageDataBunchOptions options = {
      .stats = stats::none(),
      .transforms = {
          .train = {std::make_shared<Doing>([&] {
            is_stuck = true;
            while (!release) {
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
          })},
          .valid = {}}};
  options.batch_size = 1;
  options.workers = 1;
  options.timeout = std::chrono::milliseconds(50);
  options.device = torch::kCPU;
  Learner learn(
      ImageDataBunch::from_folder(shades.path(), options),
      Shades::net(),
      quiet());
  std::thread later([&] {
    while (!is_stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const OwnTime since;
    while (since.seconds() < 0.4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    release = true;
  });
  expect_error<DataError>([&] { learn.fit(1); }, {"/train/", ".png"});
  later.join();
}

}  // namespace
}  // namespace tern::image_faults_test
