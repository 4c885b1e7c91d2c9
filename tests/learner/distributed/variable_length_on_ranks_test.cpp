// Samples of different lengths, distributed over several processes.

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/sample_dataset.h"
#include "tern/data/support/random.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/exact_resume.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::variable_length_on_ranks_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace nn = torch::nn;

constexpr int64_t kWords = 12, kGlobalBatch = 12;

std::vector<int64_t> lengths(int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(static_cast<int64_t>(SampleRng(5, 0, i).below(20)));
  }
  return all;
}

std::shared_ptr<SampleList> texts(int64_t count, bool is_packed) {
  std::vector<Sample> samples;
  for (const int64_t length : lengths(count)) {
    SampleRng rng(6, 0, std::ssize(samples));
    std::vector<int64_t> words(length);
    for (int64_t& word : words) {
      word = static_cast<int64_t>(1 + rng.below(kWords - 1));
    }
    samples.push_back(
        {.inputs = {torch::tensor(words, torch::kLong)},
         .targets = {torch::tensor(static_cast<int64_t>(rng.below(2)))}});
  }
  return std::make_shared<SampleList>(
      std::move(samples),
      is_packed ? pack_sequences() : pad_sequences());
}

/// The mean of the word embeddings; word 0 is padding, a vector of zeros.
struct MeanImpl : nn::Module {
  explicit MeanImpl(bool packs) : is_packed(packs) {}
  torch::Tensor forward(const Tensors& inputs) {
    const torch::Tensor& weight = embedding->weight;
    if (!is_packed) {
      const torch::Tensor& words = inputs[0];
      const torch::Tensor real = words.ne(0).unsqueeze(2);
      const torch::Tensor sum = (embedding->forward(words) * real).sum(1);
      return linear->forward(sum / real.sum(1).clamp_min(1));
    }
    const torch::Tensor &sizes = inputs[0], &words = inputs[1];
    const torch::Tensor sum = torch::zeros({sizes.size(0), 4})
                                  .index_add(
                                      0,
                                      sample_of_row(sizes, words.size(0)),
                                      weight.index_select(0, words));
    return linear->forward(sum / sizes.clamp_min(1).unsqueeze(1));
  }
  bool is_packed;
  nn::Embedding embedding =
      register_module("embedding", nn::Embedding(kWords, 4));
  nn::Linear linear = register_module("linear", nn::Linear(4, 2));
};

std::unique_ptr<Learner>
learner_of(int64_t world_size, bool is_packed, int64_t train) {
  DataBunch data;
  data.device = torch::kCPU;
  data.train = std::make_shared<DataLoader>(
      texts(train, is_packed),
      DataLoaderOptions{
          .batch_size = kGlobalBatch / world_size,
          .training = true,
          .sampler = std::make_shared<LengthBucketSampler>(lengths(train)),
          .workers = 2});
  data.valid = std::make_shared<DataLoader>(
      texts(31, is_packed),
      DataLoaderOptions{.batch_size = 4, .workers = 0});
  torch::manual_seed(2);
  auto learn = std::make_unique<Learner>(
      data,
      std::make_shared<MeanImpl>(is_packed),
      quiet(
          {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
           .metrics = {accuracy()},
           .seed = 1}));
  learn->to_distributed({.group = {.timeout = std::chrono::seconds(30)}});
  return learn;
}

/// All weights, the validation losses and the accuracy, as kDouble.
torch::Tensor result_of(Learner& learn) {
  Tensors all;
  for (const torch::Tensor& p : parameters_of(learn)) {
    all.push_back(p.flatten().to(torch::kDouble));
  }
  const double accuracy = learn.state()["accuracy"];
  all.push_back(torch::tensor(
      {learn.state().valid_loss, accuracy, learn.validate().loss},
      torch::kDouble));
  return torch::cat(all);
}

/// How often each of `count` samples was used, over all ranks.
std::vector<int>
times_of(Learner& learn, const std::vector<int64_t>& own, int64_t count) {
  std::string text;
  for (const int64_t index : own) text += std::to_string(index) + " ";
  std::vector<std::string> of_ranks = {text};
  // A single process has no group.
  if (const auto distributed = learn.find<Distributed>()) {
    of_ranks = distributed->group()->all_gather(text);
  }
  std::vector<int> times(count);
  for (const std::string& of_rank : of_ranks) {
    std::istringstream words(of_rank);
    for (int64_t index = 0; words >> index;) ++times.at(index);
  }
  return times;
}

TEST(VariableLengthOnRanks, TrainsLikeOneProcessWithTheGlobalBatch) {
  for (const bool is_packed : {false, true}) {
    const TempFolder folder;
    for (const int64_t world_size : {1, 2, 3}) {
      expect_ranks(world_size, [&](const LaunchEnvironment&) {
        // 6 batches of 12 and a short one of 5.
        const auto learn = learner_of(world_size, is_packed, 77);
        std::vector<int64_t> seen;
        learn->add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
          if (!l.state().training || l.state().epoch > 0) return;
          const std::vector<int64_t>& rows = l.state().batch_data.indices;
          seen.insert(seen.end(), rows.begin(), rows.end());
        }});
        learn->fit(2, 0.1);
        EXPECT_EQ(learn->state().iteration, 14);
        EXPECT_EQ(times_of(*learn, seen, 77), std::vector<int>(77, 1));
        torch::Tensor result = result_of(*learn);
        if (world_size == 1) {
          return write_file(
              folder / "one",
              {static_cast<const char*>(result.const_data_ptr()),
               result.nbytes()});
        }
        auto expected = read_file(folder / "one");
        EXPECT_TRUE(torch::allclose(
            result,
            torch::from_blob(expected.data(), result.sizes(), torch::kDouble),
            1e-4,
            1e-5))
            << world_size;
      });
    }
  }
}

TEST(VariableLengthOnRanks, LimitedBatchesStillHaveSimilarLengths) {
  expect_ranks(3, [&](const LaunchEnvironment&) {
    const auto learn = learner_of(3, /*is_packed=*/false, 240);
    const std::vector<int64_t> all = lengths(240);
    std::vector<std::string> batches;
    learn->add<LimitBatches>({.train = 5});
    learn->add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (!l.state().training) return;
      std::string& text = batches.emplace_back();
      for (const int64_t index : l.state().batch_data.indices) {
        text += std::to_string(all[index]) + " ";
      }
    }});
    learn->fit(1, 0.1);
    ASSERT_EQ(batches.size(), 5u);
    for (const std::string& own : batches) {
      int64_t least = 20, most = 0;
      for (const std::string& text :
           learn->find<Distributed>()->group()->all_gather(own)) {
        std::istringstream words(text);
        for (int64_t length = 0; words >> length;) {
          least = std::min(least, length);
          most = std::max(most, length);
        }
      }
      // 12 of 240 samples with lengths 0 to 19.
      EXPECT_LE(most - least, 2);
    }
  });
}

TEST(VariableLengthOnRanks, ResumesExactlyInTheMiddleOfAnEpoch) {
  for (const bool is_packed : {false, true}) {
    const TempFolder folder;
    expect_exact_resume_on_ranks(folder, [&] {
      return learner_of(2, is_packed, 77);
    });
  }
}

}  // namespace
}  // namespace tern::variable_length_on_ranks_test
