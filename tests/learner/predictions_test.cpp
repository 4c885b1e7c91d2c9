#include "tern/learner/predictions.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/learner.h"
#include "tern/learner/losses/losses.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::predictions_test {
namespace {

using namespace testing_support;  // NOLINT
using Strings = std::vector<std::string>;

/// Takes two inputs; returns class logits, a number, and one scalar per batch.
struct TwoHeadsImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& x,
      const torch::Tensor& weight) {
    return {
        torch::stack({x.sum(1), -x.sum(1)}, 1) * scale,
        x.select(1, 0) * weight,
        scale.sum()};
  }
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};

/// Three validation samples and ten training samples.
DataBunch two_headed_data() {
  const auto samples = [](int64_t count) {
    const torch::Tensor x = torch::arange(2 * count, torch::kFloat) - 2;
    const torch::Tensor classes = torch::arange(count) % 2;
    return std::make_shared<TensorDataset>(
        Tensors{x.view({count, 2}), torch::arange(count, torch::kFloat)},
        Tensors{classes, torch::arange(count, torch::kFloat) / 2});
  };
  DataBunch data = DataBunch::create(
      samples(10),
      samples(3),
      {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.outputs = {
      {.kind = TargetKind::category, .names = {"up", "down"}},
      {.kind = TargetKind::number, .names = {"age"}}};
  return data;
}

Learner two_headed_learner(DataBunch data = two_headed_data()) {
  const auto loss = [](const Tensors& outputs, const Tensors& targets) {
    return torch::nn::functional::cross_entropy(outputs[0], targets[0]) +
           torch::mse_loss(outputs[1], targets[1]);
  };
  return Learner(
      std::move(data),
      std::make_shared<TwoHeadsImpl>(),
      quiet({.loss = Loss(loss).activation(Activation::softmax)}));
}

struct EchoImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x * scale; }
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};

/// A model whose outputs are its inputs.
Learner echo(std::vector<OutputInfo> outputs, Loss loss, Strings classes = {}) {
  const auto samples = std::make_shared<TensorDataset>(
      Tensors{torch::zeros({2, 3})},
      Tensors{torch::zeros({2, 3})});
  DataBunch data = DataBunch::create(samples, samples, {.workers = 0});
  data.device = torch::kCPU;
  data.classes = std::move(classes);
  data.outputs = std::move(outputs);
  return Learner(
      data,
      std::make_shared<EchoImpl>(),
      quiet({.loss = std::move(loss)}));
}

TEST(Predictions, ContainAllOutputsAndAllTargets) {
  Learner learn = two_headed_learner();
  const Predictions predictions = learn.get_preds();
  const Batch all = learn.data().valid->dataset().get_batch({0, 1, 2}, {});
  ASSERT_EQ(predictions.outputs.size(), 3u);
  ASSERT_EQ(predictions.all_targets.size(), 2u);
  const torch::Tensor sums = all.inputs[0].sum(1);
  EXPECT_TRUE(torch::allclose(
      predictions.outputs[0],
      torch::stack({sums, -sums}, 1).softmax(1)));
  EXPECT_TRUE(torch::equal(
      predictions.outputs[1],
      all.inputs[0].select(1, 0) * all.inputs[1]));
  EXPECT_TRUE(torch::equal(predictions.all_targets[0], all.targets[0]));
  EXPECT_TRUE(torch::equal(predictions.all_targets[1], all.targets[1]));
  // `preds` and `targets` are the first of each.
  EXPECT_TRUE(torch::equal(predictions.preds, predictions.outputs[0]));
  EXPECT_TRUE(torch::equal(predictions.targets, predictions.all_targets[0]));
  // Has no value per sample.
  EXPECT_FALSE(predictions.outputs[2].defined());
}

/// Five samples; the model returns its inputs.
struct LossCase {
  const char* name;
  Loss loss;
  torch::Tensor outputs;
  Tensors targets;
  torch::Tensor preds;
};

std::vector<LossCase> losses_of_all_kinds() {
  using namespace torch::nn;  // NOLINT
  torch::manual_seed(3);
  const torch::Tensor x = 3 * torch::randn({5, 3});
  const torch::Tensor classes = torch::tensor({0, 2, 1, 2, 0});
  const torch::Tensor labels = torch::tensor(
      {{1.f, 0.f, 1.f},
       {0.f, 0.f, 1.f},
       {1.f, 1.f, 1.f},
       {0.f, 0.f, 0.f},
       {0.f, 1.f, 0.f}});
  const torch::Tensor pixels = 3 * torch::randn({5, 3, 4, 4});
  torch::Tensor mask = torch::randint(0, 3, {5, 4, 4}, torch::kLong);
  mask[1].fill_(2);
  mask[3].slice(0, 0, 3).fill_(2);
  const torch::Tensor weights = torch::tensor({1.f, 4.f, 0.5f});
  const torch::Tensor soft = x.softmax(1), soft_pixels = pixels.softmax(1);
  const torch::Tensor points = torch::randn({5, 4, 2});
  const torch::Tensor is_visible = torch::tensor(
      {{1, 1, 1, 1}, {0, 0, 0, 1}, {1, 0, 1, 0}, {0, 0, 0, 0}, {1, 1, 0, 1}},
      torch::kBool);
  const auto ignoring = CrossEntropyLossOptions().ignore_index(2);
  return {
      {"cross-entropy", CrossEntropyLoss(), x, {classes}, soft},
      {"ignoring", CrossEntropyLoss(ignoring), x, {classes}, soft},
      {"smoothed", label_smoothing_cross_entropy(), x, {classes}, soft},
      {"focal", focal_loss(), x, {classes}, soft},
      {"log likelihood", NLLLoss(), x.log_softmax(1), {classes}, soft},
      {"masks", CrossEntropyLoss(), pixels, {mask}, soft_pixels},
      {"ignoring pixels",
       CrossEntropyLoss(ignoring),
       pixels,
       {mask},
       soft_pixels},
      {"weighed pixels",
       CrossEntropyLoss(CrossEntropyLossOptions().weight(weights)),
       pixels,
       {mask},
       soft_pixels},
      {"dice", dice_ce_loss({.ignore_index = 2}), pixels, {mask}, soft_pixels},
      {"labels", BCEWithLogitsLoss(), x, {labels}, x.sigmoid()},
      {"weighed labels",
       BCEWithLogitsLoss(BCEWithLogitsLossOptions().pos_weight(weights)),
       x,
       {labels},
       x.sigmoid()},
      {"probabilities", BCELoss(), x.sigmoid(), {labels}, x.sigmoid()},
      {"margin", MultiLabelSoftMarginLoss(), x, {labels}, x.sigmoid()},
      {"numbers", MSELoss(), x, {labels}, x},
      {"points", points_loss(), points, {points + 1, is_visible}, points}};
}

TEST(Predictions, PerSampleLossesMatchTheLearnersLoss) {
  for (const LossCase& one : losses_of_all_kinds()) {
    SCOPED_TRACE(one.name);
    const auto samples =
        std::make_shared<TensorDataset>(Tensors{one.outputs}, one.targets);
    DataBunch data =
        DataBunch::create(samples, samples, {.batch_size = 2, .workers = 0});
    data.device = torch::kCPU;
    Learner learn(
        data,
        std::make_shared<EchoImpl>(),
        quiet({.loss = one.loss}));
    const Predictions predictions =
        learn.get_preds(*learn.data().valid, /*with_losses=*/true);
    EXPECT_TRUE(torch::allclose(predictions.preds, one.preds, 1e-4, 1e-6));
    const torch::Tensor counts = one.loss.counts({one.outputs}, one.targets);
    ASSERT_EQ(predictions.losses.numel(), 5);
    for (int64_t i = 0; i < 5; ++i) {
      Tensors target;
      for (const torch::Tensor& all : one.targets) {
        target.push_back(all.slice(0, i, i + 1));
      }
      const torch::Tensor alone =
          one.loss({one.outputs.slice(0, i, i + 1)}, target);
      EXPECT_NEAR(
          predictions.losses[i].item<double>(),
          counts[i].item<double>() > 0 ? alone.item<double>() : 0,
          1e-5)
          << "sample " << i;
    }
    // It is a sum of two means, but weighted like one of them.
    if (std::string(one.name) == "dice") continue;
    EXPECT_NEAR(
        (predictions.losses * counts).sum().item<double>() /
            counts.sum().item<double>(),
        learn.validate().loss,
        1e-5);
  }
}

// As in LibTorch (reduction none) and fastai. In the loss of a single sample
// the class weight would cancel out.
TEST(Predictions, PerSampleLossesAreMultipliedByTheClassWeights) {
  const torch::Tensor x = torch::randn({4, 3});
  const torch::Tensor classes = torch::tensor({0, 2, 1, 2});
  const torch::Tensor weights = torch::tensor({1.f, 4.f, 0.5f});
  const Loss loss = torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().weight(weights));
  EXPECT_TRUE(torch::allclose(
      loss.per_sample({x}, {classes}),
      torch::cross_entropy_loss(x, classes, weights, at::Reduction::None)));
}

TEST(Predictions, OfASoftMarginLossAreMultiLabel) {
  Learner learn =
      echo({}, torch::nn::MultiLabelSoftMarginLoss(), {"a", "b", "c"});
  const Prediction prediction = learn.predict(torch::tensor({2.f, -1.f, 0.2f}));
  EXPECT_EQ(prediction.kind, TargetKind::multi_category);
  EXPECT_EQ(prediction.labels, (Strings{"a", "c"}));
}

TEST(Predictions, HaveIndicesEvenIfACallbackReplacesTheBatch) {
  Learner learn = two_headed_learner();
  learn.add<LambdaCallback>({.on_batch_begin = [](Learner& l) {
    Batch& batch = l.state().batch_data;
    batch = Batch{batch.inputs, batch.targets};
  }});
  EXPECT_EQ(learn.get_preds().indices, std::vector<int64_t>({0, 1, 2}));
}

TEST(Predictions, OfSingleSamplesMatchGetPreds) {
  Learner learn = two_headed_learner();
  const Predictions predictions = learn.get_preds();
  const Batch all = learn.data().valid->dataset().get_batch({0, 1, 2}, {});
  for (int64_t i = 0; i < 3; ++i) {
    const Prediction one =
        learn.predict(Tensors{all.inputs[0][i], all.inputs[1][i]});
    ASSERT_EQ(one.outputs.size(), 3u);
    EXPECT_TRUE(torch::equal(one.probabilities, predictions.preds[i]));
    EXPECT_TRUE(
        torch::equal(one.outputs[1].probabilities, predictions.outputs[1][i]));
    EXPECT_EQ(one.label, i == 0 ? "down" : "up");
    EXPECT_EQ(one.index, i == 0 ? 1 : 0);
    EXPECT_EQ(one.outputs[0].label, one.label);
    EXPECT_EQ(one.outputs[1].kind, TargetKind::number);
    const double age = predictions.outputs[1][i].item<double>();
    EXPECT_EQ(one.outputs[1].numbers, std::vector<double>{age});
    const Prediction same = decode(predictions, i);
    EXPECT_EQ(same.label, one.label);
    EXPECT_EQ(same.outputs[1].numbers, one.outputs[1].numbers);
  }
  EXPECT_EQ(to_string(decode(predictions, 2)), "up (1.000); age 4; undefined");
  EXPECT_THROW(decode(predictions, 3), c10::IndexError);
}

TEST(Predictions, TestTimeAugmentationAveragesEveryOutput) {
  DataBunch data = two_headed_data();
  data.batch_transforms.push_back(
      [](Batch& batch, const BatchTransformContext& context) {
        if (context.training) batch.inputs[1] = batch.inputs[1] + 4;
      });
  Learner learn = two_headed_learner(std::move(data));
  const Tensors plain = learn.get_preds().outputs;
  const Batch all = learn.data().valid->dataset().get_batch({0, 1, 2}, {});
  const Predictions mixed = learn.tta();
  EXPECT_TRUE(torch::allclose(mixed.outputs[0], plain[0]));
  EXPECT_TRUE(torch::allclose(
      mixed.outputs[1],
      plain[1] + 0.75 * 4 * all.inputs[0].select(1, 0)));
  EXPECT_TRUE(torch::equal(mixed.preds, mixed.outputs[0]));
}

TEST(Predictions, OfMultipleLabelsAreTheClassesAboveTheThreshold) {
  const torch::Tensor logits = torch::tensor({2.f, -1.f, 0.5f});
  Learner learn =
      echo({}, torch::nn::BCEWithLogitsLoss(), {"haze", "road", "water"});
  Prediction prediction = learn.predict(logits);
  EXPECT_EQ(prediction.kind, TargetKind::multi_category);
  EXPECT_EQ(prediction.labels, (Strings{"haze", "water"}));
  EXPECT_EQ(prediction.indices, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(prediction.label, "haze, water");
  EXPECT_EQ(prediction.index, -1);
  EXPECT_TRUE(torch::equal(prediction.probabilities, logits.sigmoid()));
  EXPECT_EQ(to_string(prediction), "haze (0.881), water (0.622)");

  learn.data().outputs = {
      {.kind = TargetKind::multi_category, .threshold = 0.7}};
  EXPECT_EQ(learn.predict(logits).labels, (Strings{"haze"}));
  const Prediction none = learn.predict(-torch::ones({3}));
  EXPECT_TRUE(none.labels.empty());
  EXPECT_EQ(to_string(none), "none");
}

TEST(Predictions, OfBinaryCrossEntropyLossAreMultiLabel) {
  Learner learn = echo({}, torch::nn::BCELoss(), {"a", "b", "c"});
  EXPECT_EQ(
      learn.predict(torch::tensor({0.6f, 0.4f, 0.9f})).labels,
      (Strings{"a", "c"}));
}

TEST(Predictions, MultipleLabelsUseBinaryCrossEntropyByDefault) {
  Learner learn = echo({{.kind = TargetKind::multi_category}}, {});
  EXPECT_EQ(
      learn.predict(torch::tensor({2.f, -1.f, 0.5f})).labels,
      (Strings{"class 0", "class 2"}));
  EXPECT_NEAR(learn.validate().loss, std::log(2), 1e-6);
}

TEST(Predictions, OfARegressionAreNumbers) {
  const torch::Tensor values = torch::tensor({1.5f, -2.f, 40.25f});
  Learner learn = echo({}, torch::nn::MSELoss());
  const Prediction prediction = learn.predict(values);
  EXPECT_EQ(prediction.kind, TargetKind::number);
  EXPECT_EQ(prediction.numbers, (std::vector<double>{1.5, -2, 40.25}));
  EXPECT_EQ(prediction.label, "1.5, -2, 40.25");
  EXPECT_EQ(prediction.index, -1);
  learn.data().outputs = {
      {.kind = TargetKind::number, .names = {"x", "y", "z"}}};
  EXPECT_EQ(to_string(learn.predict(values)), "x 1.5, y -2, z 40.25");
}

TEST(Predictions, OfPointsHaveCoordinatesAndNames) {
  const torch::Tensor places = torch::tensor({{1.5f, 2.f}, {30.f, 40.25f}});
  Learner learn = echo({{.kind = TargetKind::points}}, points_loss());
  const Prediction prediction = learn.predict(places);
  EXPECT_EQ(prediction.kind, TargetKind::points);
  EXPECT_TRUE(torch::equal(prediction.points, places));
  EXPECT_EQ(prediction.label, "point 0 (1.5, 2.0), point 1 (30.0, 40.2)");
  learn.data().outputs[0].names = {"nose", "chin"};
  EXPECT_EQ(
      to_string(learn.predict(places)),
      "nose (1.5, 2.0), chin (30.0, 40.2)");
}

TEST(Predictions, OfADetectorAreTheBoxesAboveTheThreshold) {
  const torch::Tensor boxes = torch::tensor(
      {{1.f, 2.f, 3.f, 4.f},
       {5.f, 6.f, 7.f, 8.f},
       {0.f, 0.f, 1.f, 1.f},
       {0.f, 0.f, 0.f, 0.f}});
  const torch::Tensor scores = torch::tensor({0.9f, 0.5f, 0.4f, 0.f});
  const torch::Tensor labels = torch::tensor({1, 0, 1, -1});
  const std::vector<OutputInfo> info = {
      {.kind = TargetKind::boxes, .names = {"cat", "dog"}}};
  const Prediction prediction = decode({boxes, scores, labels}, info);
  EXPECT_EQ(prediction.kind, TargetKind::boxes);
  EXPECT_TRUE(torch::equal(prediction.boxes, boxes.slice(0, 0, 2)));
  EXPECT_EQ(prediction.labels, (std::vector<std::string>{"dog", "cat"}));
  EXPECT_EQ(prediction.indices, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(to_string(prediction), "dog (0.900), cat (0.500)");
  EXPECT_EQ(prediction.outputs.size(), 1u);
  // Further outputs are independent of the boxes.
  EXPECT_EQ(
      decode({boxes, scores, labels, torch::tensor({41.5f})}, info)
          .outputs.at(1)
          .numbers,
      std::vector<double>{41.5});
  EXPECT_EQ(
      to_string(
          decode({boxes, scores, torch::full({4}, -1, torch::kLong)}, info)),
      "none");
}

// The four raw outputs of a detector become three, so the entries of the others
// have the places that they have in the predictions.
TEST(Predictions, OutputsAfterADetectorsHaveTheirOwnActivation) {
  const Tensors outputs = {
      torch::zeros({1, 1, 2}),
      torch::zeros({1, 1, 4}),
      torch::tensor({{{-4.f, -4.f, 4.f, 4.f}}}),
      torch::tensor({{8.f, 8.f}}),
      torch::tensor({{1.f, 3.f}})};
  const std::vector<OutputInfo> info = {
      {.kind = TargetKind::boxes,
       .activation = Activation::detections,
       .detection = {.levels = 1}},
      {},
      {},
      {.names = {"day", "night"}, .activation = Activation::softmax}};
  const Tensors activated = activate(outputs, info);
  ASSERT_EQ(activated.size(), 4u);
  EXPECT_TRUE(torch::allclose(activated[3], outputs[4].softmax(1)));
  Tensors sample;
  for (const torch::Tensor& output : activated) sample.push_back(output[0]);
  EXPECT_EQ(decode(sample, info).outputs.at(1).label, "night");
}

TEST(Predictions, OfPixelsAreMasks) {
  torch::Tensor logits = torch::zeros({3, 2, 2});
  logits[2][0][1] = 5;
  Learner learn =
      echo({}, torch::nn::CrossEntropyLoss(), {"sky", "road", "car"});
  const Prediction prediction = learn.predict(logits);
  EXPECT_EQ(prediction.kind, TargetKind::mask);
  EXPECT_TRUE(torch::equal(prediction.mask, torch::tensor({{0, 2}, {0, 0}})));
  EXPECT_EQ(prediction.label, "");
  EXPECT_EQ(to_string(prediction), "mask of 2 x 2");
  // One channel, compared with the threshold.
  Learner binary = echo(
      {{.kind = TargetKind::mask, .threshold = 0.9}},
      torch::nn::BCEWithLogitsLoss());
  EXPECT_TRUE(torch::equal(
      binary.predict(torch::tensor({{{1.f, 5.f}}})).mask,
      torch::tensor({{0, 1}})));
}

TEST(Predictions, OfOneProbabilityDistinguishTwoClasses) {
  Learner learn = echo({}, torch::nn::BCEWithLogitsLoss(), {"dark", "light"});
  const Prediction light = learn.predict(torch::tensor({2.f}));
  EXPECT_EQ(light.label, "light");
  EXPECT_EQ(light.index, 1);
  EXPECT_EQ(to_string(learn.predict(torch::tensor({-2.f}))), "dark (0.881)");
}

TEST(Predictions, OfImagesAreNotClassesEvenIfTheDataHasClasses) {
  Learner learn = echo({}, torch::nn::MSELoss(), {"a", "b", "c"});
  const Prediction prediction = learn.predict(torch::zeros({3, 4, 4}));
  EXPECT_EQ(prediction.kind, TargetKind::number);
  EXPECT_EQ(prediction.label, "");
  EXPECT_EQ(to_string(prediction), "[3, 4, 4] Float");
}

// ---- Logits shown as probabilities ----

/// Returns a multiple of x, whatever is trained.
struct TimesImpl : torch::nn::Module {
  explicit TimesImpl(double factor, bool is_softmax = false)
      : factor(factor), is_softmax(is_softmax) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = factor * x * scale;
    return is_softmax ? y.softmax(1) : y;
  }
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
  double factor;
  bool is_softmax;
};

struct Told {
  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  Learner learn;

  Told(
      const Model& model,
      const Loss& loss,
      std::vector<OutputInfo> outputs = {})
      : learn(
            [&] {
              DataBunch data = point_data();
              data.outputs = std::move(outputs);
              return data;
            }(),
            model,
            {.loss = loss, .sink = sink}) {}
};

torch::Tensor own_loss(const torch::Tensor& pred, const torch::Tensor& target) {
  return torch::cross_entropy_loss(pred, target);
}

TEST(Predictions, OfClassesThatAreNotProbabilitiesWarnOnce) {
  Told told(std::make_shared<TimesImpl>(5), own_loss);
  const torch::Tensor preds = told.learn.get_preds().preds;
  EXPECT_LT(preds.min().item<double>(), 0);  // they stay unchanged
  told.learn.get_preds();
  told.learn.predict(torch::ones({2}));
  told.learn.tta();
  ASSERT_EQ(told.sink->warnings.size(), 1U);
  for (const char* words :
       {"loss is a function",
        "from -",
        "learn.data().outputs = {{.activation = Activation::softmax}}",
        ".activation(Activation::softmax) of the Loss",
        "Activation::none"}) {
    EXPECT_NE(told.sink->warnings[0].find(words), std::string::npos) << words;
  }
  // The advice of the warning.
  told.learn.data().outputs = {{.activation = Activation::softmax}};
  const torch::Tensor sums = told.learn.get_preds().preds.sum(1);
  EXPECT_TRUE(torch::allclose(sums, torch::ones_like(sums)));
}

TEST(Predictions, DoNotWarnIfTheyAreProbabilitiesOrAnActivationIsSet) {
  const auto expect_silence = [](Told told) {
    told.learn.get_preds();
    told.learn.predict(torch::ones({2}));
    EXPECT_EQ(told.sink->warnings, Strings());
  };
  const Model times = std::make_shared<TimesImpl>(5);
  expect_silence(
      {std::make_shared<TimesImpl>(5, /*is_softmax=*/true), own_loss});
  expect_silence({times, torch::nn::CrossEntropyLoss()});
  expect_silence({times, Loss(own_loss).activation(Activation::softmax)});
  expect_silence({times, Loss(own_loss).activation(Activation::none)});
  expect_silence({times, own_loss, {{.activation = Activation::softmax}}});
  expect_silence({times, own_loss, {{.activation = Activation::none}}});
  expect_silence({times, own_loss, {{.kind = TargetKind::number}}});
  expect_silence({times, Loss()});
}

TEST(Predictions, WarningsForMultipleLabelsAndOneOutputSuggestSigmoid) {
  const auto warning = [](Told told) {
    told.learn.get_preds();
    return told.sink->warnings.empty() ? "" : told.sink->warnings[0];
  };
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  EXPECT_TRUE(
      has(warning(
              {std::make_shared<TimesImpl>(5),
               own_loss,
               {{.kind = TargetKind::multi_category}}}),
          "outputs[0].activation = Activation::sigmoid,"));
  EXPECT_TRUE(has(
      warning({std::make_shared<TimesImpl>(5), torch::nn::MultiMarginLoss()}),
      "loss is MultiMarginLoss,"));
  struct OneImpl : TimesImpl {
    OneImpl() : TimesImpl(5) {}
    torch::Tensor forward(const torch::Tensor& x) {
      return TimesImpl::forward(x).narrow(1, 0, 1);
    }
  };
  EXPECT_TRUE(
      has(warning({std::make_shared<OneImpl>(), own_loss}),
          "Activation::sigmoid}}"));
}

TEST(Predictions, ExportingAModelThatReturnsLogitsWarns) {
  const TempFolder temp;
  Told told(std::make_shared<TimesImpl>(5), own_loss);
  told.learn.export_model(temp / "a.safetensors");
  told.learn.get_preds();
  ASSERT_EQ(told.sink->warnings.size(), 1U);
  EXPECT_NE(
      told.sink->warnings[0].find("the raw outputs. If these are logits"),
      std::string::npos);
  // A model that has returned probabilities is not warned about.
  Told known(std::make_shared<TimesImpl>(5, /*is_softmax=*/true), own_loss);
  known.learn.get_preds();
  known.learn.export_model(temp / "a.safetensors");
  EXPECT_EQ(known.sink->warnings, Strings());
}

TEST(Predictions, ReportOutputsThatCannotBeConcatenated) {
  // Each sample's output has the width of its batch: 3, then 1.
  struct WideImpl : torch::nn::Module {
    torch::nn::Linear linear =
        register_module("linear", torch::nn::Linear(2, 1));
    torch::Tensor forward(const torch::Tensor& x) {
      return linear->forward(x).expand({-1, x.size(0)});
    }
  };
  const auto points = std::make_shared<TensorDataset>(
      Tensors{torch::rand({4, 2})},
      Tensors{torch::rand({4, 1})});
  DataBunch data =
      DataBunch::create(points, points, {.batch_size = 3, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, std::make_shared<WideImpl>(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.get_preds(); },
      {"first output of the first batch is [3, 3]",
       "of another batch [1, 1]",
       "expected [N, ...]"});
}

TEST(Predictions, ReportAMissingInput) {
  Learner learn = two_headed_learner();
  expect_error<c10::ValueError>(
      [&] { learn.predict(Tensors{}); },
      {"there is no input"});
  expect_error<c10::ValueError>(
      [&] {
        learn.predict(Tensors{torch::zeros({2}), torch::Tensor()});
      },
      {"undefined"});
}

}  // namespace
}  // namespace tern::predictions_test
