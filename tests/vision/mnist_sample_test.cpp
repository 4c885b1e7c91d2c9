#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/test_data.h"
#include "tern/vision/image_data_bunch.h"

namespace tern::mnist_sample_test {
namespace {

struct Summary {
  int64_t images = 0, batches = 0;
  double pixels = 0, targets = 0;  // weighted by position
  friend bool operator==(const Summary&, const Summary&) = default;
};

Summary summary_of(const DataLoader& loader, int64_t epoch) {
  Summary summary;
  auto batches = loader.epoch(epoch);
  while (const std::optional<Batch> batch = batches.next()) {
    ++summary.batches;
    summary.images += batch->size();
    const auto weights = torch::arange(1, batch->size() + 1).to(torch::kDouble);
    const auto weighed = [&](const torch::Tensor& values) {
      return static_cast<double>(summary.batches) *
             (values.to(torch::kDouble).view({batch->size(), -1}).sum(1) *
              weights)
                 .sum()
                 .item<double>();
    };
    summary.pixels += weighed(batch->inputs[0]);
    summary.targets += weighed(batch->targets[0]);
  }
  return summary;
}

TEST(MnistSample, BatchesAreTheSameForAnyNumberOfWorkers) {
  TERN_REQUIRE_DATA(folder);
  const auto images = untar_data(urls::mnist_sample, {.data = folder});
  Summary expected;
  for (const int64_t workers : {0, 1, 8}) {
    const DataBunch data =
        ImageDataBunch::from_folder(images, {.workers = workers});
    EXPECT_EQ(data.classes, (std::vector<std::string>{"3", "7"}));
    EXPECT_EQ(data.train->dataset().size(), 12396);
    EXPECT_EQ(data.valid->dataset().size(), 2038);
    const Summary train = summary_of(*data.train, 3);
    EXPECT_EQ(train.images, 12396 / 64 * 64);
    const Summary valid = summary_of(*data.valid, 0);
    EXPECT_EQ(valid.images, 2038);
    if (workers == 0) {
      expected = train;
    }
    EXPECT_EQ(train, expected) << workers;
  }
}

}  // namespace
}  // namespace tern::mnist_sample_test
