// Samples of different lengths under a Learner: padded and packed batches.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/data/sample_dataset.h"
#include "tern/data/support/random.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::variable_length_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace nn = torch::nn;

constexpr int64_t kWords = 12;

/// Texts of 0 to 9 words, numbered 1 to 11; class 1 if most words are above 6.
std::vector<Sample> texts(int64_t count, uint64_t seed) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    SampleRng rng(seed, 0, i);
    std::vector<int64_t> words(rng.below(10));
    int64_t high = 0;
    for (int64_t& word : words) {
      word = static_cast<int64_t>(1 + rng.below(kWords - 1));
      high += word > 6 ? 1 : -1;
    }
    samples.push_back(
        {.inputs = {torch::tensor(words, torch::kLong)},
         .targets = {torch::tensor(high > 0 ? 1 : 0, torch::kLong)}});
  }
  return samples;
}

std::vector<int64_t> lengths_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> lengths;
  for (const Sample& sample : samples) {
    lengths.push_back(sample.inputs[0].size(0));
  }
  return lengths;
}

/// For padded texts and their mask.
struct GruImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& words, const torch::Tensor& mask) {
    const torch::Tensor states =
        std::get<0>(gru->forward(embedding->forward(words)));
    const torch::Tensor real = mask.unsqueeze(2).to(states.scalar_type());
    return linear->forward((states * real).sum(1) / real.sum(1).clamp_min(1));
  }
  nn::Embedding embedding =
      register_module("embedding", nn::Embedding(kWords, 8));
  nn::GRU gru =
      register_module("gru", nn::GRU(nn::GRUOptions(8, 16).batch_first(true)));
  nn::Linear linear = register_module("linear", nn::Linear(16, 2));
};

/// For packed texts.
struct BagImpl : nn::Module {
  torch::Tensor forward(
      const torch::Tensor& lengths,
      const torch::Tensor& words) {
    return linear->forward(bag->forward(words, offsets_of(lengths)));
  }
  nn::EmbeddingBag bag = register_module(
      "bag",
      nn::EmbeddingBag(nn::EmbeddingBagOptions(kWords, 8).mode(torch::kMean)));
  nn::Linear linear = register_module("linear", nn::Linear(8, 2));
};

enum class Form { padded, packed };

Collate collate_of(Form form) {
  return form == Form::padded
             ? pad_sequences({.inputs = {{.mask = MaskPlace::input}}})
             : pack_sequences();
}

Model net_of(Form form) {
  torch::manual_seed(1);
  if (form == Form::padded) return std::make_shared<GruImpl>();
  return std::make_shared<BagImpl>();
}

constexpr int64_t kValid = 50;

DataBunch text_data(Form form, DataLoaderOptions options = {.batch_size = 16}) {
  const std::vector<Sample> train = texts(200, 1);
  if (!options.sampler) {
    options.sampler = std::make_shared<LengthBucketSampler>(
        lengths_of(train),
        LengthBucketOptions{.pool = 4});
  }
  DataBunch data = DataBunch::create(
      std::make_shared<SampleList>(train, collate_of(form)),
      std::make_shared<SampleList>(texts(kValid, 2), collate_of(form)),
      std::move(options));
  data.device = torch::kCPU;
  return data;
}

Learner text_learner(Form form, DataBunch data) {
  return Learner(
      std::move(data),
      net_of(form),
      quiet({.metrics = {accuracy()}, .seed = 3}));
}

/// The logits of one text, computed alone and without padding.
torch::Tensor alone(Learner& learn, Form form, const Sample& sample) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& words = sample.inputs[0];
  const int64_t length = words.size(0);
  if (form == Form::packed) {
    return learn.model().forward({torch::tensor({length}), words})[0];
  }
  // The mean of no states: a GRU rejects an empty sequence.
  if (length == 0) {
    const auto& linear = learn.model().module()->named_parameters();
    return linear["linear.bias"].unsqueeze(0);
  }
  return learn.model().forward(
      {words.unsqueeze(0), torch::ones({1, length}, torch::kBool)})[0];
}

TEST(VariableLength, TrainsAndValidatesLikeSampleBySample) {
  for (const Form form : {Form::padded, Form::packed}) {
    Tensors weights;
    for (const int64_t workers : {0, 2}) {
      Learner learn = text_learner(
          form,
          text_data(form, {.batch_size = 16, .workers = workers}));
      learn.fit(8, 0.02);
      const Validation validation = learn.validate();
      double loss = 0, right = 0;
      learn.model().eval();
      for (const Sample& sample : texts(kValid, 2)) {
        const torch::Tensor logits = alone(learn, form, sample);
        const torch::Tensor target = sample.targets[0].unsqueeze(0);
        loss += nn::functional::cross_entropy(logits, target).item<double>();
        right += logits.argmax(1).eq(target).sum().item<double>();
      }
      EXPECT_NEAR(validation.loss, loss / kValid, 1e-5);
      EXPECT_NEAR(validation["accuracy"], right / kValid, 1e-6);
      EXPECT_GE(validation["accuracy"], 0.9);
      if (weights.empty()) weights = parameters_of(learn);
      EXPECT_TRUE(all_equal(weights, parameters_of(learn))) << workers;
    }
  }
}

TEST(VariableLength, PredictsEachSampleAsOnItsOwn) {
  for (const Form form : {Form::padded, Form::packed}) {
    DataBunch data = text_data(form, {.batch_size = 7, .workers = 0});
    const std::vector<Sample> samples = texts(kValid, 2);
    const DataLoader by_length(
        data.valid->dataset_ptr(),
        {.batch_size = 7,
         .sampler = std::make_shared<LengthBucketSampler>(
             lengths_of(samples),
             LengthBucketOptions{.shuffle = false}),
         .workers = 0});
    Learner learn = text_learner(form, data);
    std::vector<int64_t> in_order(kValid);
    std::iota(in_order.begin(), in_order.end(), 0);
    for (const DataLoader& loader : {*data.valid, by_length}) {
      const Predictions all = learn.get_preds(loader, /*with_losses=*/true);
      ASSERT_EQ(all.preds.sizes(), (std::vector<int64_t>{kValid, 2}));
      std::vector<int64_t> indices = all.indices;
      std::sort(indices.begin(), indices.end());
      EXPECT_EQ(indices, in_order);
      for (int64_t row = 0; row < kValid; ++row) {
        const Sample& sample = samples[all.indices[row]];
        const torch::Tensor logits = alone(learn, form, sample);
        EXPECT_TRUE(
            torch::allclose(all.preds[row], logits.softmax(1)[0], 1e-4, 1e-5));
        EXPECT_TRUE(torch::equal(all.targets[row], sample.targets[0]));
        EXPECT_NEAR(
            all.losses[row].item<double>(),
            nn::functional::cross_entropy(
                logits,
                sample.targets[0].unsqueeze(0))
                .item<double>(),
            1e-4);
      }
    }
    EXPECT_TRUE(torch::allclose(
        learn.tta().preds,
        learn.get_preds().preds,
        1e-4,
        1e-5));
  }
}

/// A class per word: whether it is above 6.
std::shared_ptr<SampleList> tagged(const Collate& collate) {
  std::vector<Sample> samples = texts(kValid, 2);
  for (Sample& sample : samples) {
    sample.targets = {sample.inputs[0].gt(6).to(torch::kLong)};
  }
  return std::make_shared<SampleList>(std::move(samples), collate);
}

Learner tagger(const Collate& collate) {
  DataBunch data = DataBunch::create(
      tagged(collate),
      tagged(collate),
      {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  struct TaggerImpl : nn::Module {
    torch::Tensor forward(const torch::Tensor& words) {
      return embedding->forward(words);
    }
    nn::Embedding embedding =
        register_module("embedding", nn::Embedding(kWords, 2));
  };
  Loss loss([](const torch::Tensor& pred, const torch::Tensor& target) {
    return nn::functional::cross_entropy(pred.flatten(0, 1), target.flatten());
  });
  loss.count_by([](const Tensors&, const Tensors& targets) {
    return targets[0].ne(-100).sum(1);
  });
  torch::manual_seed(1);
  return Learner(
      data,
      std::make_shared<TaggerImpl>(),
      quiet({.loss = loss.activation(Activation::none)}));
}

TEST(VariableLength, AnOutputPerStepWeightsAllStepsEqually) {
  Learner learn = tagger(pad_sequences(
      {.inputs = {SequencePadding{}}, .targets = {{.value = -100}}}));
  const torch::NoGradGuard no_grad;
  Tensors words, tags;
  for (const Sample& sample : texts(kValid, 2)) {
    words.push_back(sample.inputs[0]);
    tags.push_back(sample.inputs[0].gt(6).to(torch::kLong));
  }
  const torch::Tensor expected = nn::functional::cross_entropy(
      learn.model().forward({torch::cat(words)})[0],
      torch::cat(tags));
  EXPECT_NEAR(learn.validate().loss, expected.item<double>(), 1e-5);
}

TEST(VariableLength, GetPredsOfAnOutputPerStepNeedsAFixedLength) {
  const auto padded = [](int64_t length) {
    return pad_sequences(
        {.inputs = {{.fixed_length = length}},
         .targets = {{.value = -100, .fixed_length = length}}});
  };
  Learner differing = tagger(padded(0));
  const std::string text =
      error_of<c10::ValueError>([&] { differing.get_preds(); });
  const size_t end = text.find("; expected");
  ASSERT_NE(end, std::string::npos) << text;
  EXPECT_EQ(
      text.substr(end, text.find('\n') - end),
      "; expected [N, ...] with the same sizes after N. Give the model inputs "
      "of one size (sequences with SequencePadding::fixed_length), or call "
      "predict for each sample.");
  Learner fixed = tagger(padded(9));
  const Predictions all = fixed.get_preds();
  EXPECT_EQ(all.preds.sizes(), (std::vector<int64_t>{kValid, 9, 2}));
  EXPECT_EQ(all.targets.sizes(), (std::vector<int64_t>{kValid, 9}));
}

TEST(VariableLength, PackedTargetsOfAllBatchesKeepTheirLengths) {
  DataBunch data = text_data(Form::packed, {.batch_size = 16, .workers = 0});
  std::vector<Sample> samples = texts(kValid, 2);
  for (Sample& sample : samples) {
    sample.targets = {sample.inputs[0].to(torch::kFloat)};
  }
  data.valid = std::make_shared<DataLoader>(
      std::make_shared<SampleList>(samples, pack_sequences({.targets = {0}})),
      DataLoaderOptions{.batch_size = 8, .workers = 0});
  Learner learn = text_learner(Form::packed, data);
  const Predictions all = learn.get_preds();
  ASSERT_EQ(all.all_targets.size(), 2u);
  EXPECT_EQ(all.preds.size(0), kValid);
  const torch::Tensor rows =
      sample_of_row(all.all_targets[0], all.all_targets[1].size(0));
  for (int64_t i = 0; i < kValid; ++i) {
    EXPECT_TRUE(torch::equal(
        all.all_targets[1].index({rows == i}),
        samples[i].targets[0]));
  }
}

TEST(VariableLength, TrainsIn16Bits) {
  for (const Form form : {Form::padded, Form::packed}) {
    Learner full = text_learner(form, text_data(form));
    full.fit(2, 0.02);
    for (const bool is_half : {false, true}) {
      Learner learn = text_learner(form, text_data(form));
      is_half ? learn.to_fp16({.force_fp16 = true}) : learn.to_bf16();
      learn.fit(2, 0.02);
      EXPECT_NEAR(learn.validate().loss, full.validate().loss, 0.1);
    }
  }
}

TEST(VariableLength, AccumulatesLikeOneLargerBatch) {
  for (const Form form : {Form::padded, Form::packed}) {
    Tensors weights;
    for (const int64_t batches : {1, 3}) {
      // 200 samples in batches of 12: the last one has 8.
      DataBunch data = text_data(
          form,
          {.batch_size = 12 / batches,
           .sampler = std::make_shared<SequentialSampler>(200),
           .workers = 0});
      DataLoaderOptions options = data.train->options();
      options.drop_last = false;
      data.train =
          std::make_shared<DataLoader>(data.train->dataset_ptr(), options);
      Learner learn(
          data,
          net_of(form),
          quiet(
              {.optimizer =
                   optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))}));
      learn.add<GradientAccumulation>({.batches = batches});
      learn.fit(2, 0.1);
      const Tensors now = parameters_of(learn);
      if (weights.empty()) weights = now;
      for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_TRUE(torch::allclose(now[i], weights[i], 1e-4, 1e-6)) << i;
      }
    }
  }
}

TEST(VariableLength, ResumesExactlyInTheMiddleOfAnEpoch) {
  for (const Form form : {Form::padded, Form::packed}) {
    const TempFolder folder;
    // 12 batches per epoch.
    const auto make = [&](const char* name) {
      Learner learn =
          text_learner(form, text_data(form, {.batch_size = 16, .workers = 2}));
      learn.add<SaveCheckpoint>({.folder = folder / name, .every_steps = 5});
      return learn;
    };
    Learner whole = make("whole");
    whole.fit(2, 0.02);
    {
      Learner cut = make("cut");
      cut.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
        if (l.state().training && l.state().iteration == 17) l.request_stop();
      }});
      cut.fit(2, 0.02);
    }
    Learner resumed = make("cut");
    resumed.resume(folder / "cut");
    resumed.fit(2, 0.02);
    EXPECT_EQ(resumed.state().iteration, whole.state().iteration);
    EXPECT_TRUE(bytes_of(resumed) == bytes_of(whole));
  }
}

}  // namespace
}  // namespace tern::variable_length_test
