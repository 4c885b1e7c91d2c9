#include "tern/data/mnist.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/data_loader.h"
#include "tern/data/download/untar_data.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/test_data.h"

namespace tern::mnist_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes idx(std::vector<uint8_t> dims, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<uint8_t>(dims.size())};
  for (const uint8_t dim : dims) bytes.insert(bytes.end(), {0, 0, 0, dim});
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

// Three images of 1x2 pixels with the labels 7, 0, 9.
struct SmallFiles {
  TempFolder temp;
  std::filesystem::path images = temp / "images", labels = temp / "labels";

  SmallFiles() {
    write_file(images, idx({3, 1, 2}, {1, 2, 3, 4, 5, 6}));
    write_file(labels, idx({3}, {7, 0, 9}));
  }
};

TEST(IdxDataset, ReturnsTheRequestedRows) {
  const SmallFiles files;
  const IdxDataset dataset(files.images, files.labels);
  EXPECT_EQ(dataset.size(), 3);
  const Batch batch = dataset.get_batch({2, 0, 2}, {});
  const auto expected = torch::tensor({5, 6, 1, 2, 5, 6}, torch::kByte);
  EXPECT_TRUE(torch::equal(batch.inputs[0], expected.view({3, 1, 2, 1})));
  EXPECT_TRUE(torch::equal(batch.targets[0], torch::tensor({9, 7, 9})));
  EXPECT_EQ(batch.targets[0].scalar_type(), torch::kLong);
}

TEST(IdxDataset, FillsTheBuffersOfTheLoader) {
  const SmallFiles files;
  const auto dataset = std::make_shared<IdxDataset>(files.images, files.labels);
  const DataLoader loader(
      dataset,
      {.batch_size = 2, .workers = 2, .pin_memory = false});
  auto epoch = loader.epoch(0);
  int64_t seen = 0;
  while (auto batch = epoch.next()) seen += batch->size();
  EXPECT_EQ(seen, 3);
}

TEST(IdxDataset, NamesASampleByFileAndNumber) {
  const SmallFiles files;
  const IdxDataset dataset(files.images, files.labels);
  EXPECT_EQ(dataset.describe(2), files.images.string() + ", image 2");
}

TEST(IdxDataset, RejectsIndicesAndLabelsOutOfRange) {
  const SmallFiles files;
  const IdxDataset dataset(files.images, files.labels);
  expect_error<c10::IndexError>(
      [&] { dataset.get_batch({3}, {}); },
      {"index is 3; expected 0..2"});
  EXPECT_THROW(dataset.get_batch({-1}, {}), c10::IndexError);
  expect_error<DataError>(
      [&] { IdxDataset(files.images, files.labels, /*classes=*/8); },
      {"has the label 9 at index 2; expected 0 to 7"});
}

struct BadFiles {
  const char* words;
  Bytes images, labels;
};

TEST(IdxDataset, RejectsFilesThatDoNotBelongTogether) {
  const Bytes images = idx({2, 1, 1}, {1, 2}), labels = idx({2}, {0, 1});
  const std::vector<BadFiles> cases = {
      {"has 2 images, but", images, idx({3}, {0, 1, 2})},
      {"has the label 10 at index 1; expected 0 to 9",
       images,
       idx({2}, {9, 10})},
      {"has the shape [2]; expected [size, height, width]", labels, labels},
      {"has the shape [2, 1, 1]; expected [size]", images, images},
      {"has the shape [2, 0, 5]", idx({2, 0, 5}, {}), labels},
      {"has the shape [0, 1, 1]", idx({0, 1, 1}, {}), idx({0}, {})},
      {"truncated", idx({2, 1, 1}, {1}), labels},
      {"truncated", images, idx({2}, {1})},
  };
  for (const BadFiles& c : cases) {
    const TempFolder temp;
    write_file(temp / "images", c.images);
    write_file(temp / "labels", c.labels);
    expect_error<DataError>(
        [&] { IdxDataset(temp / "images", temp / "labels"); },
        {c.words});
  }
}

TEST(Mnist, FindsPlainAndGzippedFiles) {
  const TempFolder temp;
  write_file(temp / "train-images-idx3-ubyte", idx({1, 1, 1}, {5}));
  write_file(
      temp / "train-labels-idx1-ubyte.gz",
      gzip_bytes(idx({1}, Bytes{3})));
  const auto dataset = mnist_dataset(temp.path(), /*train=*/true);
  EXPECT_EQ(dataset->get_batch({0}, {}).targets[0].item<int64_t>(), 3);
  expect_error<DataError>(
      [&] { mnist_dataset(temp.path(), /*train=*/false); },
      {"has neither t10k-images-idx3-ubyte nor"});
}

TEST(Mnist, ReadsTheRealFiles) {
  TERN_REQUIRE_DATA(data);
  const auto valid = mnist_dataset(untar_data(urls::mnist), /*train=*/false);
  ASSERT_EQ(valid->size(), 10000);
  const Batch batch = valid->get_batch({0, 1, 2, 9999}, {});
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<int64_t>{4, 28, 28, 1}));
  EXPECT_TRUE(torch::equal(batch.targets[0], torch::tensor({7, 2, 1, 6})));
  // The gzipped files, read in place, yield the same images.
  const auto packed = mnist_dataset(data / "mnist", /*train=*/false);
  EXPECT_TRUE(torch::equal(
      packed->get_batch({0, 1, 2, 9999}, {}).inputs[0],
      batch.inputs[0]));
}

}  // namespace
}  // namespace tern::mnist_test
