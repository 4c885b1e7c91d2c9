#include "tern/data/from_torch.h"

#include <gtest/gtest.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/tensor.h>

#include "tern/data/data_loader.h"

namespace tern::from_torch_test {
namespace {

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto value = static_cast<int64_t>(index);
    return {torch::tensor({value}), torch::tensor(value * value)};
  }
  std::optional<size_t> size() const override { return 10; }
};

TEST(FromTorch, ReturnsTheExamplesAsBatches) {
  const DataLoader loader(
      from_torch(Squares()),
      {.batch_size = 4, .workers = 2});
  auto pass = loader.epoch(0);
  pass.next();
  const Batch second = *pass.next();
  EXPECT_TRUE(
      torch::equal(second.inputs[0], torch::tensor({{4}, {5}, {6}, {7}})));
  EXPECT_TRUE(torch::equal(second.targets[0], torch::tensor({16, 25, 36, 49})));
  EXPECT_EQ(pass.next()->size(), 2);
}

TEST(FromTorch, AcceptsExamplesWithoutTarget) {
  const auto dataset = from_torch(
      torch::data::datasets::TensorDataset(torch::arange(6).reshape({3, 2})));
  const Batch batch = dataset->get_batch({2, 0}, {});
  EXPECT_TRUE(torch::equal(batch.inputs[0], torch::tensor({{4, 5}, {0, 1}})));
  EXPECT_TRUE(batch.targets.empty());
}

}  // namespace
}  // namespace tern::from_torch_test
