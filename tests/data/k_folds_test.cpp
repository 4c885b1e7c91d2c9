#include "tern/data/k_folds.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/sampler.h"
#include "tern/data/stream_dataset.h"
#include "tern/tests/support/expect_error.h"

namespace tern::k_folds_test {
namespace {

class Lines final : public SinkImpl {
 public:
  void line(const std::string& text) override { texts.push_back(text); }
  void warning(const std::string& text) override { texts.push_back(text); }
  void progress(const Progress&) override {}

  std::vector<std::string> texts;
};

// The input of each sample is its number.
std::shared_ptr<const Dataset> numbered(
    int64_t first,
    const std::vector<int64_t>& classes) {
  const int64_t size = std::ssize(classes);
  return std::make_shared<TensorDataset>(
      Tensors{torch::arange(first, first + size)},
      Tensors{torch::tensor(classes)});
}

// Adds 1000 to the input of a sample in training, in place of augmentation.
class Augmented final : public Dataset {
 public:
  explicit Augmented(std::shared_ptr<const Dataset> source)
      : source_(std::move(source)) {}
  int64_t size() const override { return source_->size(); }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    Batch batch = source_->get_batch(indices, context);
    if (context.training) batch.inputs[0] = batch.inputs[0] + 1000;
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> source_;
};

std::vector<int64_t> inputs_of(const DataLoader& loader) {
  std::vector<int64_t> inputs;
  DataLoader pass = loader;
  for (const Batch& batch : pass) {
    const torch::Tensor numbers = batch.inputs[0];
    const auto* const first = numbers.const_data_ptr<int64_t>();
    inputs.insert(inputs.end(), first, first + numbers.numel());
  }
  std::ranges::sort(inputs);
  return inputs;
}

DataBunch bunch(DataLoaderOptions options = {.batch_size = 2, .workers = 0}) {
  DataBunch data = DataBunch::create(
      std::make_shared<Augmented>(numbered(0, {0, 0, 0, 0, 0, 0, 1, 1})),
      std::make_shared<Augmented>(numbered(8, {0, 1, 1, 1})),
      options);
  data.device = torch::kCPU;
  data.classes = {"cat", "dog"};
  return data;
}

TEST(KFold, UsesEverySampleOnceForValidation) {
  const auto folds = k_fold(11, 3);
  ASSERT_EQ(folds.size(), 3u);
  std::multiset<int64_t> valid;
  for (const SplitIndices& fold : folds) {
    EXPECT_TRUE(std::ranges::is_sorted(fold.train));
    EXPECT_TRUE(std::ranges::is_sorted(fold.valid));
    EXPECT_EQ(fold.train.size() + fold.valid.size(), 11u);
    for (const int64_t i : fold.valid) {
      EXPECT_EQ(std::ranges::count(fold.train, i), 0);
    }
    valid.insert(fold.valid.begin(), fold.valid.end());
  }
  EXPECT_EQ(folds[0].valid.size(), 4u);
  EXPECT_EQ(folds[2].valid.size(), 3u);
  std::multiset<int64_t> all;
  for (int64_t i = 0; i < 11; ++i) all.insert(i);
  EXPECT_EQ(valid, all);
}

TEST(KFold, DependsOnItsSeedAndShufflesTheSamples) {
  EXPECT_EQ(k_fold(50, 5)[0].valid, k_fold(50, 5)[0].valid);
  EXPECT_NE(k_fold(50, 5)[0].valid, k_fold(50, 5, 1)[0].valid);
  std::vector<int64_t> first(10);
  for (int64_t i = 0; i < 10; ++i) first[i] = i;
  EXPECT_NE(k_fold(50, 5)[0].valid, first);
}

TEST(KFold, RejectsFewerThanTwoFoldsAndMoreThanSamples) {
  for (const int64_t folds : {-1, 0, 1, 4}) {
    expect_error<c10::ValueError>(
        [&] { k_fold(3, folds); },
        {"[k_fold]", "of 3 samples", "at least 2"});
  }
}

TEST(StratifiedKFold, DistributesEveryClassEvenly) {
  std::vector<int64_t> classes(23, 7);
  for (int64_t i = 0; i < 9; ++i) classes[2 * i] = -3;
  const torch::Tensor labels = torch::tensor(classes);
  for (const SplitIndices& fold : stratified_k_fold(labels, 4)) {
    const auto valid = labels.index_select(0, torch::tensor(fold.valid));
    const auto rare = valid.eq(-3).sum().item<int64_t>();
    EXPECT_TRUE(rare == 2 || rare == 3) << rare;
    EXPECT_TRUE(valid.numel() == 5 || valid.numel() == 6) << valid.numel();
  }
}

TEST(StratifiedKFold, RejectsInvalidClassesAndClassesThatAreAllTooSmall) {
  expect_error<c10::ValueError>(
      [] { stratified_k_fold(torch::rand({4}), 2); },
      {"[4] Float", "whole number"});
  expect_error<c10::ValueError>(
      [] { stratified_k_fold(torch::arange(4), 2); },
      {"each of the 4 classes", "2 folds"});
}

TEST(KFolds, AppliesTheTransformsOfTheSplitToSamplesOfBothLoaders) {
  const DataBunch data = bunch();
  std::multiset<int64_t> valid;
  for (const DataBunch& fold : k_folds(data, 3)) {
    const auto evaluated = inputs_of(*fold.valid);
    auto trained = inputs_of(*fold.train);
    EXPECT_EQ(evaluated.size(), 4u);
    EXPECT_EQ(trained.size(), 8u);
    for (const int64_t number : trained) {
      EXPECT_GE(number, 1000);
      EXPECT_EQ(std::ranges::count(evaluated, number - 1000), 0);
    }
    for (const int64_t number : evaluated) EXPECT_LT(number, 1000);
    valid.insert(evaluated.begin(), evaluated.end());
    EXPECT_EQ(fold.classes, data.classes);
    EXPECT_EQ(fold.train->options().batch_size, 2);
  }
  EXPECT_EQ(valid.size(), 12u);
  EXPECT_EQ(std::set<int64_t>(valid.begin(), valid.end()).size(), 12u);
}

TEST(KFolds, StratifiesByTheTargetsAndWarnsAboutRareClasses) {
  const auto sink = std::make_shared<Lines>();
  for (const DataBunch& fold : k_folds(bunch(), 4, {.stratified = true})) {
    int64_t dogs = 0;
    DataLoader valid = *fold.valid;
    for (const Batch& batch : valid) {
      dogs += batch.targets[0].sum().item<int64_t>();
    }
    EXPECT_TRUE(dogs == 1 || dogs == 2) << dogs;
  }
  k_folds(bunch(), 6, {.stratified = true, .sink = sink});
  ASSERT_EQ(sink->texts.size(), 1u);
  EXPECT_NE(sink->texts[0].find("6 folds"), std::string::npos);
  EXPECT_NE(sink->texts[0].find("dog"), std::string::npos);
}

TEST(KFolds, WorksWithoutValidationDataAndKeepsTheTestLoader) {
  DataBunch data = DataBunch::create(
      numbered(0, {0, 1, 2, 3}),
      nullptr,
      {.batch_size = 3, .workers = 0},
      numbered(50, {0}));
  const auto folds = k_folds(data, 2);
  EXPECT_EQ(folds[1].test, data.test);
  // A fold of two samples has no whole batch, so the short batch is kept.
  EXPECT_EQ(inputs_of(*folds[0].train).size(), 2u);
  EXPECT_EQ(inputs_of(*folds[0].valid).size(), 2u);
}

TEST(KFolds, ComparesShapesEvenIfTheFirstSampleIsLeftOut) {
  // Leaves its first sample out, as an image that cannot be read.
  struct Holes final : Dataset {
    int64_t size() const override { return 4; }
    Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
        const override {
      Batch batch;
      std::vector<float> values;
      for (int64_t row = 0; row < std::ssize(indices); ++row) {
        if (indices[row] == 0) {
          batch.left_out.push_back(row);
        } else {
          values.push_back(1);
        }
      }
      batch.inputs = {torch::tensor(values)};
      return batch;
    }
  };
  const auto holes = std::make_shared<Holes>();
  EXPECT_EQ(k_folds(DataBunch::create(holes, holes, {}), 2).size(), 2u);
}

TEST(KFolds, RejectsDataThatCannotBeSplit) {
  DataBunch with_sampler = bunch(
      {.batch_size = 2,
       .sampler = std::make_shared<SequentialSampler>(8),
       .workers = 0});
  expect_error<c10::ValueError>(
      [&] { k_folds(with_sampler, 2); },
      {"train loader has a sampler", "DataBlock"});
  DataBunch of_two_classes = bunch();
  of_two_classes.valid =
      std::make_shared<DataLoader>(numbered(0, {1, 2}), DataLoaderOptions{});
  expect_error<c10::ValueError>(
      [&] { k_folds(of_two_classes, 2); },
      {"Augmented", "TensorDataset", "k_fold and DataBunch::create"});
  DataBunch of_two_shapes = DataBunch::create(
      numbered(0, {0, 1}),
      std::make_shared<TensorDataset>(
          Tensors{torch::zeros({2, 3}, torch::kLong)},
          Tensors{torch::zeros({2}, torch::kLong)}),
      {.workers = 0});
  expect_error<c10::ValueError>(
      [&] { k_folds(of_two_shapes, 2); },
      {"[] Long, [] Long", "[3] Long, [] Long", "with k_fold"});
  struct Nothing : StreamDataset {
    std::unique_ptr<Pass> pass(const BatchContext&) const override {
      return nullptr;
    }
  };
  expect_error<c10::ValueError>(
      [&] {
        const auto epochs =
            std::make_shared<StreamEpochs>(std::make_shared<Nothing>(), 10);
        k_folds(DataBunch::create(epochs, nullptr), 2);
      },
      {"a stream"});
  expect_error<c10::ValueError>([] { k_folds(bunch(), 13); }, {"13 folds"});
  expect_error<c10::ValueError>(
      [] {
        const auto numbers = std::make_shared<TensorDataset>(
            Tensors{torch::rand({6, 2})},
            Tensors{torch::rand({6})});
        k_folds(
            DataBunch::create(numbers, nullptr, {.workers = 0}),
            2,
            {.stratified = true});
      },
      {"[6] Float", "one class for each sample"});
  expect_error<c10::ValueError>(
      [] { k_folds(DataBunch{}, 2); },
      {"no train loader"});
}

}  // namespace
}  // namespace tern::k_folds_test
