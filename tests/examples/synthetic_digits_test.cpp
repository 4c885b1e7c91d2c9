#include "tern/examples/support/synthetic_digits.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/download/download.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/samples/idx.h"
#include "tern/data/mnist.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::examples::synthetic_digits_test {
namespace {

namespace fs = std::filesystem;

TEST(SyntheticDigits, AreTheSameForTheSameSeed) {
  EXPECT_EQ(draw_digit(3, 42, 7), draw_digit(3, 42, 7));
  EXPECT_NE(draw_digit(3, 42, 7), draw_digit(3, 42, 8));
  EXPECT_NE(draw_digit(3, 42, 7), draw_digit(3, 43, 7));
  EXPECT_NE(draw_digit(3, 42, 7), draw_digit(8, 42, 7));
}

TEST(SyntheticDigits, AreBrightStrokesOnBlack) {
  for (int digit = 0; digit < 10; ++digit) {
    for (int64_t index = 0; index < 200; ++index) {
      const DigitImage image = draw_digit(digit, 1, index);
      const auto dark = std::count(image.begin(), image.end(), 0);
      EXPECT_GT(*std::max_element(image.begin(), image.end()), 100);
      EXPECT_GT(dark, 350) << digit << " " << index;
      EXPECT_LT(dark, 760) << digit << " " << index;
    }
  }
}

TEST(SyntheticDigits, RejectNumbersThatAreNotDigits) {
  expect_error<std::invalid_argument>(
      [&] { draw_digit(10, 1, 1); },
      {"digit is 10"});
  expect_error<std::invalid_argument>(
      [&] { draw_digit(-1, 1, 1); },
      {"digit is -1"});
}

// Returns the class whose mean image is nearest.
double nearest_mean_accuracy(const std::vector<int>& digits) {
  std::vector<std::array<double, 784>> means(digits.size());
  for (size_t c = 0; c < digits.size(); ++c) {
    for (int64_t i = 0; i < 200; ++i) {
      const DigitImage image = draw_digit(digits[c], 5, i);
      for (size_t p = 0; p < 784; ++p) means[c][p] += image[p] / 200.0;
    }
  }
  int right = 0, all = 0;
  for (size_t c = 0; c < digits.size(); ++c) {
    for (int64_t i = 1000; i < 1200; ++i, ++all) {
      const DigitImage image = draw_digit(digits[c], 5, i);
      size_t best = 0;
      double best_distance = 1e30;
      for (size_t k = 0; k < means.size(); ++k) {
        double distance = 0;
        for (size_t p = 0; p < 784; ++p) {
          distance += (image[p] - means[k][p]) * (image[p] - means[k][p]);
        }
        if (distance < best_distance) best_distance = distance, best = k;
      }
      right += best == c ? 1 : 0;
    }
  }
  return static_cast<double>(right) / all;
}

// On MNIST this nearest-mean classifier reaches 0.82.
TEST(SyntheticDigits, CanBeLearnedButNotByTheirMeansAlone) {
  const double all = nearest_mean_accuracy({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_GT(all, 0.5);
  EXPECT_LT(all, 0.9);
  EXPECT_GT(nearest_mean_accuracy({3, 7}), 0.85);
}

TEST(SyntheticDigits, AreWrittenInTheLayoutOfMnistSample) {
  const TempFolder temp;
  write_digit_pictures(temp.path(), {.train = 5, .valid = 3});
  for (const char* file :
       {"train/3/0.png",
        "train/3/2.png",
        "train/7/3.png",
        "train/7/4.png",
        "valid/3/0.png",
        "valid/3/1.png",
        "valid/7/2.png"}) {
    EXPECT_TRUE(fs::exists(temp / file)) << file;
  }
  EXPECT_EQ(temp.entries(), 6 + 8 + 1);
  const auto bytes = read_file(temp / "labels.csv");
  const std::string labels(bytes.begin(), bytes.end());
  EXPECT_TRUE(labels.starts_with("name,label\ntrain/3/0.png,0\n")) << labels;
  EXPECT_NE(labels.find("valid/7/2.png,1\n"), std::string::npos) << labels;
  EXPECT_NE(
      read_file(temp / "train/3/0.png"),
      read_file(temp / "valid/3/0.png"));
}

TEST(SyntheticDigits, AreWrittenInMnistsIdxFormat) {
  const TempFolder temp;
  write_digit_idx(temp.path(), {.train = 300, .valid = 20});
  const IdxFile images = read_idx(temp / "train-images-idx3-ubyte");
  const IdxFile labels = read_idx(temp / "train-labels-idx1-ubyte");
  EXPECT_EQ(images.array.dims, (std::vector<int64_t>{300, 28, 28}));
  EXPECT_EQ(labels.array.dims, (std::vector<int64_t>{300}));
  std::array<int, 10> counts{};
  for (const uint8_t label : labels.array.values) ++counts.at(label);
  for (const int count : counts) EXPECT_GT(count, 10);

  const DigitImage first = draw_digit(labels.array.values[0], 42, 0);
  EXPECT_TRUE(
      std::equal(first.begin(), first.end(), images.array.values.begin()));
  EXPECT_EQ(read_idx(temp / "t10k-images-idx3-ubyte").array.dims[0], 20);
}

TEST(SyntheticDigits, AreReadLikeMnist) {
  const TempFolder temp;
  write_digit_idx(temp.path(), {.train = 20, .valid = 10});
  const auto train = mnist_dataset(temp.path(), /*train=*/true);
  EXPECT_EQ(train->size(), 20);
  EXPECT_EQ(
      train->get_batch({0}, {}).inputs[0].sizes(),
      (std::vector<int64_t>{1, 28, 28, 1}));
}

// Serves MNIST_SAMPLE from a local server, and holds the folders for it.
class MnistOrDigits : public testing::Test {
 protected:
  MnistOrDigits()
      : server_([this](const HttpServer::Request&) {
          return is_up_ ? HttpServer::ok("wrong")
                        : HttpServer::response("404 Not Found", "", "gone");
        }),
        url_(server_.url("/mnist_sample.tgz")) {
    file_ = {url_, 5, sha_};
    make_folders(temp_ / "data");
  }

  fs::path find() {
    said_.clear();
    return mnist_or_digits(
        {"mnist_sample", std::span(&file_, 1)},
        {.data = temp_ / "data",
         .cache = temp_ / "cache",
         .sink = [this](const std::string& line) { said_ += line + "\n"; }});
  }

  TempFolder temp_;
  bool is_up_ = false;
  HttpServer server_;
  std::string url_, said_, sha_ = std::string(64, '0');
  DatasetFile file_;
};

TEST_F(MnistOrDigits, GeneratesDigitsWithoutANetworkAndSaysSo) {
  const fs::path path = find();
  EXPECT_EQ(path, temp_ / "cache/generated/mnist_sample");
  EXPECT_TRUE(fs::exists(path / "valid/7/2037.png"));
  for (const std::string& words :
       {std::string("GENERATED"), url_, std::string("TERN_DATA")}) {
    EXPECT_NE(said_.find(words), std::string::npos) << said_;
  }

  // The second call does not try to download again.
  is_up_ = true;
  EXPECT_EQ(find(), path);
  EXPECT_NE(said_.find("GENERATED"), std::string::npos) << said_;
  EXPECT_NE(said_.find("holds mnist_sample.tgz"), std::string::npos) << said_;

  // The real data takes precedence once it is downloaded.
  make_folders(temp_ / "data/mnist_sample/train");
  EXPECT_EQ(find(), temp_ / "data/mnist_sample");
  EXPECT_EQ(said_, "");
}

TEST_F(MnistOrDigits, NeverHidesAnInvalidDownload) {
  is_up_ = true;
  expect_error<DownloadError>([&] { find(); }, {sha_});
  EXPECT_FALSE(fs::exists(temp_ / "cache/generated"));
}

}  // namespace
}  // namespace tern::examples::synthetic_digits_test
