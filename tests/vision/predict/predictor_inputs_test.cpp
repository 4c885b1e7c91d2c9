// Predictor inputs other than images, and custom metadata in the file.

#include <algorithm>
#include <future>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/predict/predictor_queue.h"

namespace tern::predictor_inputs_test {
namespace {

namespace fs = std::filesystem;
using testing_support::quiet;
using torch::Tensor;

constexpr int64_t kWords = 12;

/// Word ids, [N, T] or [N] for a single id, to three classes.
struct WordsImpl : torch::nn::Module, HasArchitecture {
  Architecture architecture() const override { return {"words", "{}"}; }
  Tensor forward(const Tensor& ids) {
    const Tensor x = table->forward(ids.to(torch::kLong));
    return head->forward(x.dim() > 2 ? x.mean(1) : x);
  }
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(kWords, 6));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6, 3));
};

/// A table row: numbers, and the id of a category.
struct RowsImpl : torch::nn::Module, HasArchitecture {
  Architecture architecture() const override { return {"rows", "{}"}; }
  std::tuple<Tensor, Tensor> forward(
      const Tensor& numbers,
      const Tensor& category) {
    const Tensor x = numbers + table->forward(category);
    return {head->forward(x), x.sum(1, /*keepdim=*/true)};
  }
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(kWords, 4));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 3));
};

class PredictorInputs : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_architecture("words", [](const Architecture&) {
      return Model(std::make_shared<WordsImpl>());
    });
    register_architecture("rows", [](const Architecture&) {
      return Model(std::make_shared<RowsImpl>());
    });
  }

  static DataBunch data(const Tensors& inputs) {
    const int64_t size = inputs[0].size(0);
    const auto set = std::make_shared<TensorDataset>(
        inputs,
        Tensors{torch::arange(size) % 3});
    DataBunch data =
        DataBunch::create(set, set, {.batch_size = 4, .workers = 0});
    data.device = torch::kCPU;
    data.classes = {"a", "b", "c"};
    return data;
  }

  /// Returns a Learner of words after its export.
  Learner words(const Tensor& ids, const ExportOptions& options = {}) const {
    torch::manual_seed(5);
    Learner learn(
        data({ids}),
        std::make_shared<WordsImpl>(),
        quiet({.loss = torch::nn::CrossEntropyLoss()}));
    learn.export_model(file_, options);
    return learn;
  }

  static bool is_near(const Prediction& a, const Prediction& b, double by) {
    return torch::allclose(a.probabilities, b.probabilities, 0, by) &&
           a.label == b.label;
  }

  TempFolder temp_;
  const fs::path file_ = temp_ / "a.safetensors";
  const PredictorOptions cpu_{.device = torch::kCPU, .exact = true};
};

TEST_F(PredictorInputs, IdsReachTheModelUnchanged) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  Learner learn = words(ids);
  for (const auto type :
       {torch::kLong, torch::kInt, torch::kShort, torch::kChar, torch::kByte}) {
    SCOPED_TRACE(torch::toString(type));
    const Predictor predictor = Predictor::load(file_, cpu_);
    const Tensor typed = ids.to(type);
    PredictorQueue queue(predictor, {.max_batch = 3});
    const auto of_tensor = predictor.predict_batch(typed);
    const auto of_list = predictor.predict_batch(typed.unbind());
    ASSERT_EQ(of_tensor.size(), 8U);
    for (int64_t i = 0; i < 8; ++i) {
      const Prediction expected = learn.predict(ids[i]);
      EXPECT_TRUE(is_near(predictor.predict(typed[i]), expected, 1e-6));
      EXPECT_TRUE(
          is_near(predictor.predict(Tensors{typed[i]}), expected, 1e-6));
      EXPECT_TRUE(is_near(of_tensor[i], expected, 1e-6));
      EXPECT_TRUE(is_near(of_list[i], expected, 1e-6));
      EXPECT_TRUE(is_near(queue.submit(typed[i]).get(), expected, 1e-6));
    }
  }
}

TEST_F(PredictorInputs, IdsStayIntegersInLowerPrecisionAndInAFusedGraph) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  Learner learn = words(ids);
  for (const auto precision : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    SCOPED_TRACE(torch::toString(precision));
    const auto predictor =
        Predictor::load(file_, {.device = torch::kCPU, .precision = precision});
    const auto predictions = predictor.predict_batch(ids);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(torch::allclose(
          predictions[i].probabilities,
          learn.predict(ids[i]).probabilities,
          0,
          precision == torch::kFloat ? 1e-4 : 2e-2));
    }
  }
}

TEST_F(PredictorInputs, AGraphAcceptsIds) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  Learner learn = words(ids, {.traced = true});
  const auto predictor = Predictor::load(
      file_,
      {.device = torch::kCPU, .trusted = true, .exact = true});
  EXPECT_TRUE(is_near(predictor.predict(ids[3]), learn.predict(ids[3]), 1e-6));
}

TEST_F(PredictorInputs, AScalarIdIsASample) {
  const Tensor ids = torch::randint(kWords, {8}, torch::kLong);
  Learner learn = words(ids);
  const Predictor predictor = Predictor::load(file_, cpu_);
  PredictorQueue queue(predictor);
  const auto predictions = predictor.predict_batch(ids);
  ASSERT_EQ(predictions.size(), 8U);
  for (int64_t i = 0; i < 8; ++i) {
    const Prediction expected = learn.predict(ids[i]);
    EXPECT_TRUE(is_near(predictions[i], expected, 1e-6));
    EXPECT_TRUE(is_near(predictor.predict(ids[i]), expected, 1e-6));
    EXPECT_TRUE(is_near(queue.submit(ids[i]).get(), expected, 1e-6));
  }
  EXPECT_TRUE(is_near(
      predictor.predict(torch::tensor(true)),
      learn.predict(torch::tensor(1)),
      1e-6));
  expect_error<c10::ValueError>(
      [&] { predictor.predict(torch::tensor(1.5)); },
      {"a 0-dim floating-point number", "without the batch dimension"});
  expect_error<c10::ValueError>(
      [&] { predictor.predict_batch(torch::tensor(3)); },
      {"no batch dimension"});
  expect_error<c10::ValueError>(
      [&] { predictor.predict(Tensors{}); },
      {"there is no input"});
}

TEST_F(PredictorInputs, AcceptsNumbersAndCategoriesTogether) {
  const Tensor numbers = torch::randn({8, 4});
  const Tensor ids = torch::randint(kWords, {8}, torch::kLong);
  DataBunch rows = data({numbers, ids});
  rows.outputs = {
      {.kind = TargetKind::category},
      {.kind = TargetKind::number, .names = {"sum"}}};
  const auto loss = [](const Tensors& outputs, const Tensors& targets) {
    return torch::nn::functional::cross_entropy(outputs[0], targets[0]);
  };
  Learner learn(
      rows,
      std::make_shared<RowsImpl>(),
      quiet({.loss = Loss(loss).activation(Activation::softmax)}));
  learn.export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  PredictorQueue queue(predictor);
  std::vector<Tensors> samples;
  for (int64_t i = 0; i < 8; ++i) samples.push_back({numbers[i], ids[i]});
  const auto predictions = predictor.predict_batch(samples);
  for (int64_t i = 0; i < 8; ++i) {
    const Prediction expected = learn.predict(samples[i]);
    for (const Prediction& prediction :
         {predictions[i],
          predictor.predict(samples[i]),
          queue.submit(samples[i]).get()}) {
      EXPECT_TRUE(is_near(prediction, expected, 1e-6));
      EXPECT_NEAR(
          prediction.outputs[1].numbers[0],
          expected.outputs[1].numbers[0],
          1e-5);
    }
  }
}

TEST_F(PredictorInputs, RejectsMixedSamplesInABatchButQueuesThem) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  words(ids);
  const Predictor predictor = Predictor::load(file_, cpu_);
  const Tensor shorter = ids[1].narrow(0, 0, 3), typed = ids[2].to(torch::kInt);
  expect_error<c10::ValueError>(
      [&] {
        predictor.predict_batch(Tensors{ids[0], shorter});
      },
      {"[5] Long", "[3] Long", "equal sizes and dtypes", "pad them"});
  expect_error<c10::ValueError>(
      [&] {
        predictor.predict_batch(Tensors{ids[0], typed});
      },
      {"[5] Long", "[5] Int", "equal sizes and dtypes"});
  PredictorQueue queue(predictor, {.max_batch = 3});
  std::vector<std::future<Prediction>> futures;
  for (const Tensor& sample : {ids[0], shorter, typed}) {
    futures.push_back(queue.submit(sample));
  }
  for (const Tensor& sample : {ids[0], shorter, typed}) {
    EXPECT_TRUE(is_near(futures[0].get(), predictor.predict(sample), 1e-6));
    futures.erase(futures.begin());
  }
}

TEST_F(PredictorInputs, BytesAreAnImageIfTheFileHasPreprocessing) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  Learner learn = words(
      ids,
      {.preprocessing = ImagePreprocessing{
           .height = 4,
           .width = 4,
           .mean = {0.5, 0.5, 0.5},
           .stddev = {1, 1, 1}}});
  const Predictor predictor = Predictor::load(file_, cpu_);
  EXPECT_TRUE(is_near(predictor.predict(ids[0]), learn.predict(ids[0]), 1e-6));
  EXPECT_EQ(
      predictor.prepare(torch::zeros({9, 9, 3}, torch::kByte)).sizes(),
      (std::vector<int64_t>{4, 4, 3}));
  expect_error<c10::ValueError>(
      [&] { predictor.predict(ids[0].to(torch::kByte)); },
      {"[5] Byte", "[H, W, 3] of Byte", "whole numbers"});
  expect_error<c10::ValueError>(
      [&] {
        predictor.predict(torch::zeros({4, 4, 3}, torch::kInt));
      },
      {"[4, 4, 3] Int", "[H, W, 3] of Byte"});
}

TEST_F(PredictorInputs, RejectsBytesThatTheModelDoesNotAccept) {
  DataBunch images = data({torch::rand({8, 3, 8, 8})});
  Learner learn(images, simple_cnn({3, 4, 3}), quiet());
  learn.export_model(file_);
  expect_error<c10::ValueError>(
      [&] {
        Predictor::load(file_, cpu_)
            .predict(torch::zeros({8, 8, 3}, torch::kByte));
      },
      {"passed to the model unchanged", "ExportOptions::preprocessing"});
}

// ---- Custom metadata ----

TEST_F(PredictorInputs, TheFileKeepsCustomMetadata) {
  const std::map<std::string, std::string> own = {
      {"vocabulary", R"(["the", "größe", "\"quoted\""])"},
      {"tern.classes", "no clash with Tern's"},
      {"mean", "0.5,\n-1"},
      {"empty", ""},
      {"zero", std::string("a\0b", 3)}};
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  words(ids, {.half = true, .metadata = own});
  const Predictor predictor = Predictor::load(file_, cpu_);
  EXPECT_EQ(predictor.card().metadata, own);
  EXPECT_EQ(predictor.card().classes[1], "b");
  EXPECT_EQ(safetensors_metadata(file_)["tern.user.mean"], own.at("mean"));
  words(ids);
  EXPECT_TRUE(Predictor::load(file_, cpu_).card().metadata.empty());
}

TEST_F(PredictorInputs, RejectsChangedMetadata) {
  words(
      torch::randint(kWords, {8, 5}, torch::kLong),
      {.metadata = {{"vocabulary", "one two"}}});
  std::vector<uint8_t> bytes = read_file(file_);
  const std::string text = "one two";
  const auto at = std::ranges::search(bytes, text).begin();
  ASSERT_NE(at, bytes.end());
  *at = 'O';
  write_file(file_, bytes);
  expect_error<DataError>(
      [&] { Predictor::load(file_, cpu_); },
      {"a.safetensors"});
}

TEST_F(PredictorInputs, RejectsInvalidMetadataBeforeWriting) {
  const Tensor ids = torch::randint(kWords, {8, 5}, torch::kLong);
  const auto refuses =
      [&](const std::string& name,
          const std::string& text,
          std::initializer_list<std::string_view> words_of_it) {
        expect_error<c10::ValueError>(
            [&] {
              words(ids, {.metadata = {{name, text}}});
            },
            words_of_it);
        EXPECT_FALSE(fs::exists(file_));
      };
  refuses("", "text", {"ExportOptions::metadata", "is empty", "UTF-8"});
  refuses("mean", "\xff", {"'mean'", "1 bytes", "not UTF-8", "hexadecimal"});
  refuses("\xff", "text", {"not UTF-8"});
  refuses(
      "all",
      std::string(9 << 20, 'a'),
      {"at most 8388608", "separate file"});
  // JSON in the header takes two bytes for each.
  refuses("all", std::string(5 << 20, '"'), {"at most 8388608"});
  const std::string most(7 << 20, 'a');
  words(ids, {.metadata = {{"all", most}}});
  EXPECT_EQ(Predictor::load(file_, cpu_).card().metadata.at("all"), most);
}

}  // namespace
}  // namespace tern::predictor_inputs_test
