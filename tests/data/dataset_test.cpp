#include "tern/data/dataset.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::dataset_test {
namespace {

std::shared_ptr<TensorDataset> counting(int64_t first, int64_t size) {
  const torch::Tensor x = torch::arange(first, first + size);
  return std::make_shared<TensorDataset>(
      Tensors{x.unsqueeze(1).to(torch::kFloat)},
      Tensors{x});
}

std::vector<int64_t> targets(const Batch& batch) {
  const torch::Tensor t = batch.targets.at(0).contiguous();
  return {t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel()};
}

TEST(TensorDataset, ReturnsRowsInTheRequestedOrder) {
  const Batch batch = counting(0, 5)->get_batch({4, 0, 4}, {});
  EXPECT_EQ(batch.size(), 3);
  EXPECT_EQ(targets(batch), (std::vector<int64_t>{4, 0, 4}));
  EXPECT_EQ(batch.inputs[0][0].item<float>(), 4.f);
}

TEST(TensorDataset, RejectsTensorsOfUnequalLength) {
  EXPECT_THROW(TensorDataset({}, {}), c10::ValueError);
  EXPECT_THROW(TensorDataset({torch::zeros({})}, {}), c10::ValueError);
  EXPECT_THROW(
      TensorDataset({torch::zeros({3})}, {torch::zeros({2})}),
      c10::ValueError);
}

TEST(Subset, ContainsTheChosenSamples) {
  const Subset subset(counting(10, 5), {3, 1});
  EXPECT_EQ(subset.size(), 2);
  EXPECT_EQ(
      targets(subset.get_batch({0, 1}, {})),
      (std::vector<int64_t>{13, 11}));
  EXPECT_EQ(subset.describe(0), "sample 3");
  EXPECT_THROW(Subset(counting(0, 5), {5}), c10::IndexError);
  EXPECT_THROW(Subset(counting(0, 5), {-1}), c10::IndexError);
}

TEST(Concat, JoinsSourcesEndToEndAcrossABatch) {
  const Concat all({counting(0, 2), counting(100, 3), counting(200, 1)});
  EXPECT_EQ(all.size(), 6);
  EXPECT_EQ(
      targets(all.get_batch({5, 0, 1, 2, 4}, {})),
      (std::vector<int64_t>{200, 0, 1, 100, 102}));
  EXPECT_EQ(all.describe(3), "sample 1");
  EXPECT_THROW(all.get_batch(6, {}), c10::IndexError);
}

TEST(Collate, NamesTheShapesThatDoNotFit) {
  const Batch small{{torch::zeros({1, 2})}, {}};
  const Batch large{{torch::zeros({1, 3})}, {}};
  try {
    collate({small, large});
    FAIL();
  } catch (const c10::ValueError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[1, 3] Float"), std::string::npos) << text;
    EXPECT_NE(text.find("[1, 2] Float"), std::string::npos) << text;
  }
}

TEST(BufferPool, ReusesMemoryThatIsNoLongerReferenced) {
  BufferPool pool;
  torch::Tensor first = pool.empty({4, 2}, torch::kFloat);
  const void* memory = first.data_ptr();
  EXPECT_NE(pool.empty({4, 2}, torch::kFloat).data_ptr(), memory);
  torch::Tensor view = first.slice(0, 0, 1);
  first.reset();
  EXPECT_NE(pool.empty({4, 2}, torch::kFloat).data_ptr(), memory);
  view.reset();
  EXPECT_EQ(pool.empty({4, 2}, torch::kFloat).data_ptr(), memory);
  EXPECT_NE(pool.empty({4, 2}, torch::kDouble).data_ptr(), memory);
}

TEST(Batch, CountsItsSamples) {
  EXPECT_EQ(Batch{}.size(), 0);
  EXPECT_EQ((Batch{{torch::zeros({5, 2})}, {}}).size(), 5);
}

}  // namespace
}  // namespace tern::dataset_test
