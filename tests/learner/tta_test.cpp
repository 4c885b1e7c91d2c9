
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/decode_predictions.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::tta_test {
namespace {

using namespace testing_support;  // NOLINT

/// Sample i has the value i; augmented in pass k, i + 10 k.
class Shifting final : public Dataset {
 public:
  int64_t size() const override { return 7; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    torch::Tensor x = torch::empty({static_cast<int64_t>(indices.size()), 1});
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t shift = context.training ? 10 * context.epoch : 0;
      x[static_cast<int64_t>(i)][0] = static_cast<double>(indices[i] + shift);
    }
    return {{x}, {x.clone()}};
  }
};

torch::nn::Sequential identity() {
  torch::nn::Sequential net(torch::nn::Linear(1, 1));
  const torch::NoGradGuard no_grad;
  net->parameters()[0].fill_(1);
  net->parameters()[1].zero_();
  return net;
}

class TtaTest : public testing::Test {
 protected:
  TtaTest() {
    DataBunch data = DataBunch::create(
        std::make_shared<Shifting>(),
        std::make_shared<Shifting>(),
        {.batch_size = 2, .workers = 0});
    data.device = torch::kCPU;
    data_ = data;
  }

  DataBunch data_;
};

TEST_F(TtaTest, CombinesThePlainPassWithTheMeanOfTheAugmentedOnes) {
  Learner learn(data_, identity(), quiet());
  const torch::Tensor plain = torch::arange(7, torch::kFloat).unsqueeze(1);
  // Passes 0 to 3 are shifted by 15 on average; the plain pass has weight 1/4.
  const Predictions predictions = learn.tta();
  EXPECT_TRUE(torch::allclose(predictions.preds, plain + 0.75 * 15));
  EXPECT_TRUE(torch::equal(predictions.targets, plain));
  EXPECT_TRUE(torch::allclose(
      learn.tta(Split::valid, {.n = 2, .beta = 0.4}).preds,
      plain + 0.6 * 5));
}

TEST_F(TtaTest, ReturnsTheMaximumWithUseMax) {
  Learner learn(data_, identity(), quiet());
  EXPECT_TRUE(torch::equal(
      learn.tta(Split::valid, {.n = 3, .use_max = true}).preds,
      torch::arange(7, torch::kFloat).unsqueeze(1) + 20));
}

TEST_F(TtaTest, AppliesBatchTransforms) {
  data_.batch_transforms.push_back(
      [](Batch& batch, const BatchTransformContext& context) {
        if (context.training) {
          batch.inputs[0] = batch.inputs[0] + 100 * context.epoch;
        }
      });
  Learner learn(data_, identity(), quiet());
  EXPECT_TRUE(torch::allclose(
      learn.tta().preds,
      torch::arange(7, torch::kFloat).unsqueeze(1) + 0.75 * 165));
}

TEST_F(TtaTest, PredictsAllTrainingDataInDatasetOrder) {
  Learner learn(data_, identity(), quiet());
  const torch::Tensor all = torch::arange(7, torch::kFloat).unsqueeze(1);
  EXPECT_TRUE(torch::equal(learn.tta(Split::train).targets, all));
  EXPECT_TRUE(torch::equal(learn.get_preds(Split::train).preds, all));
}

// Whatever the options of the loader.
TEST_F(TtaTest, PredictionsAreInOrderAndNotAugmentedWhateverTheLoader) {
  const torch::Tensor all = torch::arange(7, torch::kFloat).unsqueeze(1);
  const auto samples = std::make_shared<Shifting>();
  for (const bool trains : {false, true}) {
    for (const bool drops : {false, true}) {
      DataBunch data = data_;
      data.valid = std::make_shared<DataLoader>(
          samples,
          DataLoaderOptions{
              .batch_size = 2,
              .shuffle = true,
              .drop_last = drops,
              .training = trains,
              .workers = 0});
      Learner learn(data, identity(), quiet());
      learn.fit(1);
      const torch::Tensor expected = learn.model().forward({all})[0];
      EXPECT_TRUE(torch::allclose(learn.get_preds().preds, expected));
      EXPECT_TRUE(
          torch::allclose(learn.get_preds(*data.valid).preds, expected));
      EXPECT_TRUE(torch::equal(learn.get_preds(*data.valid).targets, all));
    }
  }
}

// A sampler selects the samples and their order.
TEST_F(TtaTest, PredictionsFollowTheSamplerOfALoader) {
  class Backwards final : public Sampler {
   public:
    int64_t size() const override { return 3; }
    std::vector<int64_t> indices(uint64_t, int64_t) const override {
      return {6, 4, 2};
    }
  };
  Learner learn(data_, identity(), quiet());
  for (const bool trains : {false, true}) {
    const DataLoader some(
        std::make_shared<Shifting>(),
        {.batch_size = 2,
         .drop_last = true,
         .training = trains,
         .sampler = std::make_shared<Backwards>(),
         .workers = 0});
    EXPECT_TRUE(torch::equal(
        learn.get_preds(some).preds,
        torch::tensor({6.0F, 4.0F, 2.0F}).unsqueeze(1)));
  }
  // All samples of a split, whatever its sampler draws in training.
  EXPECT_EQ(learn.get_preds(Split::train).preds.size(0), 7);
}

TEST_F(TtaTest, LeavesNoTrace) {
  Learner learn(data_, identity(), quiet());
  const Predictions before = learn.get_preds();
  learn.model().train();
  bool trains = false;
  learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    trains |= l.state().training || l.model().is_training();
  }});
  learn.tta();
  EXPECT_FALSE(trains);
  EXPECT_TRUE(learn.model().is_training());
  EXPECT_TRUE(torch::equal(learn.get_preds().preds, before.preds));
}

TEST_F(TtaTest, DoesNotAugmentAfterAnException) {
  bool throws = true;
  data_.batch_transforms.push_back(
      [&](Batch& batch, const BatchTransformContext& context) {
        if (context.training && throws) throw std::runtime_error("stop");
        if (context.training) batch.inputs[0] = batch.inputs[0] + 1;
      });
  Learner learn(data_, identity(), quiet());
  EXPECT_THROW(learn.tta(), std::runtime_error);
  EXPECT_TRUE(torch::equal(
      learn.get_preds().preds,
      torch::arange(7, torch::kFloat).unsqueeze(1)));
}

TEST_F(TtaTest, RejectsZeroPassesAndWeightsAboveOne) {
  Learner learn(data_, identity(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.tta(Split::valid, {.n = 0}); },
      {"n is 0", "at least one pass"});
  expect_error<c10::ValueError>(
      [&] { learn.tta(Split::valid, {.beta = 1.5}); },
      {"beta is 1.5"});
}

/// Adds its column to each pixel, which differs in the flipped image.
struct PlusColumnImpl : torch::nn::Module {
  /// \param channel  The channel to which it is added; -1: all.
  explicit PlusColumnImpl(int64_t channel = -1) : channel(channel) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor column =
        scale * torch::arange(x.size(-1), torch::kFloat);
    if (channel < 0) return x + column;
    torch::Tensor y = x.clone();
    y.select(1, channel) += column;
    return y;
  }
  int64_t channel;
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};

TEST_F(TtaTest, WithPerPixelOutputsAveragesTheImageAndItsFlip) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({5, 1, 3, 4})},
      Tensors{torch::rand({5, 1, 3, 4})});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, std::make_shared<PlusColumnImpl>(), quiet());
  const torch::Tensor x = dataset->get_batch({0, 1, 2, 3, 4}, {}).inputs[0];
  // Columns 0 to 3 and, in the flipped image, 3 to 0.
  EXPECT_TRUE(torch::allclose(learn.tta().preds, x + 1.5));
  const torch::Tensor largest = torch::tensor({3.f, 2.f, 2.f, 3.f});
  EXPECT_TRUE(torch::allclose(
      learn.tta(Split::valid, {.use_max = true}).preds,
      x + largest));
  EXPECT_TRUE(learn.data().batch_transforms.empty());
  EXPECT_TRUE(torch::equal(
      learn.get_preds().preds,
      x + torch::arange(4, torch::kFloat)));
}

TEST_F(TtaTest, CombinesOutputsAccordingToTheirKind) {
  const auto predictions_of = [&](const Loss& loss, const OutputInfo& info) {
    DataBunch data = data_;
    data.outputs = {info};
    Learner learn(data, identity(), quiet({.loss = loss}));
    return learn.tta(Split::valid, {.n = 2, .beta = 0.5});
  };
  // The weights: 3/4 without a shift, 1/4 shifted by 10.
  const torch::Tensor x = torch::arange(7, torch::kFloat).unsqueeze(1);
  // Probabilities of labels are averaged, not their logits.
  const Predictions labels = predictions_of(
      torch::nn::BCEWithLogitsLoss(),
      {.kind = TargetKind::multi_category, .names = {"odd"}, .threshold = 0.7});
  EXPECT_TRUE(torch::allclose(
      labels.preds,
      0.75 * x.sigmoid() + 0.25 * (x + 10).sigmoid()));
  EXPECT_EQ(decode(labels, 0).labels, std::vector<std::string>());
  EXPECT_EQ(decode(labels, 3).labels, std::vector<std::string>{"odd"});
  const Predictions numbers = predictions_of(
      torch::nn::MSELoss(),
      {.kind = TargetKind::number, .names = {"age"}});
  EXPECT_EQ(decode(numbers, 5).numbers, std::vector<double>{7.5});
}

TEST_F(TtaTest, WithMasksAveragesTheProbabilitiesOfEachPixel) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({4, 2, 3, 4})},
      Tensors{torch::randint(2, {4, 3, 4})});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.outputs = {{.kind = TargetKind::mask, .names = {"sky", "road"}}};
  Learner learn(
      data,
      std::make_shared<PlusColumnImpl>(/*channel=*/1),
      quiet({.loss = torch::nn::CrossEntropyLoss()}));
  const Predictions predictions = learn.tta();
  const torch::Tensor x = dataset->get_batch({0, 1, 2, 3}, {}).inputs[0];
  const torch::Tensor column = torch::arange(4, torch::kFloat);
  const auto probabilities = [&](const torch::Tensor& added) {
    return (x + torch::stack({torch::zeros({4}), added}).view({2, 1, 4}))
        .softmax(1);
  };
  const torch::Tensor expected =
      (probabilities(column) + probabilities(column.flip(0))) / 2;
  EXPECT_TRUE(torch::allclose(predictions.preds, expected));
  const Prediction first = decode(predictions, 0);
  EXPECT_EQ(first.kind, TargetKind::mask);
  EXPECT_TRUE(torch::equal(first.mask, expected[0].argmax(0)));
}

TEST_F(TtaTest, RejectsPerPixelOutputsOfInputsThatAreNotImages) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({4, 3, 3})},
      Tensors{torch::rand({4, 3, 3})});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, std::make_shared<PlusColumnImpl>(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.tta(); },
      {"per pixel", "[2, 3, 3]"});
  EXPECT_TRUE(learn.data().batch_transforms.empty());
}

TEST_F(TtaTest, ReturnsPerSampleLossesOnRequest) {
  Learner learn(data_, identity(), quiet());
  const Predictions predictions =
      learn.get_preds(data_.valid->in_order(true), /*with_losses=*/true);
  EXPECT_TRUE(torch::equal(predictions.losses, torch::zeros({7})));
  EXPECT_FALSE(learn.get_preds().losses.defined());
}

}  // namespace
}  // namespace tern::tta_test
