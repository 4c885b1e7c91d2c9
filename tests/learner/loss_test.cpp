#include "tern/learner/loss.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/learner/losses/losses.h"
#include "tern/tests/support/expect_error.h"

namespace tern::loss_test {
namespace {

const torch::Tensor kPred = torch::tensor({{2.f, 0.f}, {0.f, 1.f}});
const torch::Tensor kClass = torch::tensor({0, 0});

TEST(Loss, IsCreatedFromModulesAndFunctions) {
  const double expected =
      torch::nn::functional::cross_entropy(kPred, kClass).item<double>();
  const Loss module = torch::nn::CrossEntropyLoss();
  EXPECT_DOUBLE_EQ(module({kPred}, {kClass}).item<double>(), expected);
  EXPECT_EQ(module.activation(), Activation::softmax);
  const Loss l1 = torch::nn::L1Loss();
  EXPECT_FLOAT_EQ(l1({kPred}, {torch::zeros({2, 2})}).item<float>(), 0.75f);
  const Loss two = [](const torch::Tensor& p, const torch::Tensor& t) {
    return (p - t).sum();
  };
  EXPECT_FLOAT_EQ(two({kPred}, {torch::zeros({2, 2})}).item<float>(), 3.f);
  const Loss many = [](const Tensors& outputs, const Tensors& targets) {
    return outputs[0].sum() + outputs[1].sum() + targets[0].sum();
  };
  EXPECT_FLOAT_EQ(many({kPred, kPred}, {kClass}).item<float>(), 6.f);
}

TEST(Loss, DependsOnTheTargetsByDefault) {
  EXPECT_EQ(Loss::for_targets({kClass}).activation(), Activation::softmax);
  EXPECT_EQ(Loss::for_targets({kPred}).activation(), Activation::none);
  EXPECT_THROW(Loss::for_targets({}), c10::ValueError);
}

TEST(Loss, TurnsAOneElementLossIntoAScalar) {
  const Loss loss = [](const torch::Tensor& p, const torch::Tensor&) {
    return p.sum().reshape({1});
  };
  EXPECT_EQ(loss({kPred}, {kClass}).dim(), 0);
}

TEST(Loss, NamesAClassThatIsOutOfRange) {
  const Loss loss = torch::nn::CrossEntropyLoss();
  loss.check_class_indices({kPred}, {torch::tensor({0, 1, -100})});
  expect_error<c10::IndexError>(
      [&] {
        loss.check_class_indices({kPred}, {torch::tensor({1, 2})});
      },
      {"target 1", "class 2", "0 to 1"});
  expect_error<c10::IndexError>(
      [&] { loss.check_class_indices({kPred}, {torch::tensor({-1})}); },
      {"class -1"});
}

TEST(Loss, RejectsTheWrongNumberOfTensorsAndALossThatIsNotAScalar) {
  const Loss loss = torch::nn::MSELoss();
  expect_error<c10::ValueError>(
      [&] {
        loss({kPred, kPred}, {kPred});
      },
      {"2 outputs", "1 targets"});
  const Loss vector = [](const torch::Tensor& p, const torch::Tensor&) {
    return p;
  };
  expect_error<c10::ValueError>([&] { vector({kPred}, {kPred}); }, {"[2, 2]"});
}

TEST(Loss, ReturnsPerSampleLosses) {
  const Loss ce = torch::nn::CrossEntropyLoss();
  EXPECT_TRUE(ce.has_per_sample());
  const torch::Tensor each = ce.per_sample({kPred}, {kClass});
  EXPECT_EQ(each.sizes(), torch::IntArrayRef({2}));
  const torch::Tensor mean = ce({kPred}, {kClass});  // still reduced
  EXPECT_FLOAT_EQ(each.mean().item<float>(), mean.item<float>());
  EXPECT_LT(each[0].item<float>(), each[1].item<float>());

  const Loss l1 = torch::nn::L1Loss();
  EXPECT_TRUE(torch::allclose(
      l1.per_sample({kPred}, {torch::zeros({2, 2})}),
      torch::tensor({1.f, 0.5f})));
  const Loss own =
      Loss::mean_of([](const torch::Tensor& p, const torch::Tensor& t) {
        return (p - t).abs();
      });
  EXPECT_FLOAT_EQ(own({kPred}, {torch::zeros({2, 2})}).item<float>(), 0.75f);
  EXPECT_TRUE(torch::equal(
      own.per_sample({kPred}, {torch::zeros({2, 2})}),
      torch::tensor({1.f, 0.5f})));
}

TEST(Loss, ReturnsPerSampleLossesOfSeveralOutputs) {
  const Loss loss =
      Loss::mean_of([](const Tensors& outputs, const Tensors& targets) {
        return (outputs[0] - targets[0]).abs().sum(1) +
               (outputs[1] - targets[1]).abs().sum(1);
      });
  const Tensors outputs = {kPred, kPred + 1};
  const Tensors targets = {torch::zeros({2, 2}), kPred};
  EXPECT_TRUE(loss.has_per_sample());
  EXPECT_TRUE(torch::allclose(
      loss.per_sample(outputs, targets),
      torch::tensor({4.f, 3.f})));
  EXPECT_FLOAT_EQ(loss(outputs, targets).item<float>(), 3.5f);
  EXPECT_EQ(loss.count(outputs, targets), 2);
  // A generic function is called with (pred, target).
  const Loss generic = Loss::mean_of(
      [](const auto& pred, const auto& target) { return pred - target; });
  EXPECT_FLOAT_EQ(
      generic({kPred}, {torch::zeros({2, 2})}).item<float>(),
      0.75f);
  const Loss weighed = Loss::mean_of(
      [](const Tensors& given, const Tensors&) { return given[0].sum(1); },
      [](const Tensors&, const Tensors& all) { return all[1].select(1, 0); });
  EXPECT_FLOAT_EQ(
      weighed(outputs, {targets[0], torch::tensor({{1.f}, {3.f}})})
          .item<float>(),
      kPred.sum().item<float>() / 4);
  // One sum per sample, for example over its boxes; the last sample has none.
  const Tensors sums = {torch::tensor({6.f, 5.f, 0.f})};
  const Loss of_boxes = Loss::mean_of(
      [](const Tensors& given, const Tensors&) { return given[0]; },
      [](const Tensors&, const Tensors& all) { return all[0]; });
  EXPECT_TRUE(torch::equal(
      of_boxes.per_sample(sums, {torch::tensor({3., 1., 0.})}),
      torch::tensor({2.f, 5.f, 0.f})));
}

TEST(Loss, RestoresTheReductionAfterAnError) {
  torch::nn::CrossEntropyLoss module;
  const Loss ce = module;
  EXPECT_ANY_THROW(ce.per_sample({kPred}, {torch::tensor({0, 7})}));
  EXPECT_EQ(ce({kPred}, {kClass}).dim(), 0);
}

// The divisor of LibTorch's mean.
TEST(Loss, ReturnsItsCount) {
  using torch::nn::CrossEntropyLoss;
  using torch::nn::CrossEntropyLossOptions;
  const torch::Tensor weight = torch::tensor({1.f, 4.f});
  const torch::Tensor classes = torch::tensor({0, 1, -100, 1});
  const torch::Tensor pred = torch::randn({4, 2});
  const auto of = [&](const Loss& loss, const torch::Tensor& target) {
    return loss.count({pred}, {target});
  };
  EXPECT_EQ(of(CrossEntropyLoss(), classes), 3);
  EXPECT_EQ(
      of(CrossEntropyLoss(CrossEntropyLossOptions().weight(weight)), classes),
      9);
  EXPECT_EQ(
      of(CrossEntropyLoss(CrossEntropyLossOptions().ignore_index(1)),
         classes.clamp(0)),
      2);
  EXPECT_EQ(of(label_smoothing_cross_entropy(), classes), 3);
  EXPECT_EQ(of(focal_loss({.weight = weight}), classes), 3);
  EXPECT_EQ(of(CrossEntropyLoss(), pred.softmax(1)), 4);
  EXPECT_EQ(of(torch::nn::NLLLoss(), classes), 3);
  EXPECT_EQ(of(torch::nn::MSELoss(), pred), 8);
  EXPECT_EQ(of(torch::nn::MultiMarginLoss(), classes.clamp(0)), 4);
  EXPECT_EQ(of(CrossEntropyLoss(), classes.clamp(-100, -100)), 0);
  // A sum and a function count samples.
  EXPECT_EQ(
      of(CrossEntropyLoss(CrossEntropyLossOptions().reduction(torch::kSum)),
         classes),
      4);
  const Loss function = [](const torch::Tensor& p, const torch::Tensor& t) {
    return torch::cross_entropy_loss(p, t);
  };
  EXPECT_TRUE(function.counts_samples());
  EXPECT_EQ(of(function, classes), 4);
  const Loss own = Loss(function).count_by(
      [](const Tensors&, const Tensors& targets) { return targets[0] >= 0; });
  EXPECT_EQ(of(own, classes), 3);
  // Per pixel.
  const torch::Tensor mask = torch::tensor({{0, 1, -100}, {1, -100, -100}});
  const Loss pixels = CrossEntropyLoss();
  EXPECT_TRUE(torch::equal(
      pixels.counts({}, {mask}),
      torch::tensor({2., 1.}, torch::kDouble)));
  EXPECT_EQ(dice_ce_loss().count({}, {mask}), 3);
  EXPECT_EQ(dice_ce_loss({.lambda_ce = 0}).count({}, {mask}), 2);
}

TEST(Loss, IsTheSumOverItsSamplesDividedByItsCount) {
  torch::manual_seed(2);
  const torch::Tensor pred = torch::randn({4, 3, 5}, torch::kDouble);
  torch::Tensor mask = torch::randint(3, {4, 5}, torch::kLong);
  mask.masked_fill_(torch::rand({4, 5}) > 0.5, -100);
  mask[1].fill_(-100);
  const torch::Tensor weight = torch::rand({3}, torch::kDouble);
  const auto expect = [&](const Loss& loss, const torch::Tensor& target) {
    EXPECT_NEAR(
        (loss.sum_per_sample({pred}, {target}).sum() /
         loss.count({pred}, {target}))
            .item<double>(),
        loss({pred}, {target}).item<double>(),
        1e-12)
        << loss.name();
  };
  expect(torch::nn::CrossEntropyLoss(), mask);
  expect(
      torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().weight(weight).label_smoothing(
              0.1)),
      mask);
  expect(focal_loss({.weight = weight}), mask);
  expect(dice_ce_loss({.lambda_dice = 0, .weight = weight}), mask);
  expect(dice_ce_loss(), mask.clamp(0));
  expect(torch::nn::MSELoss(), torch::randn({4, 3, 5}, torch::kDouble));
  expect(torch::nn::HingeEmbeddingLoss(), pred.sign());
  // Sums that 16 bits cannot represent.
  const Loss ce = torch::nn::CrossEntropyLoss();
  const torch::Tensor many = torch::full({1, 3, 70000}, 1, torch::kBFloat16);
  EXPECT_EQ(
      ce.sum_per_sample({many}, {torch::zeros({1, 70000}, torch::kLong)})
          .scalar_type(),
      torch::kFloat);
}

TEST(Loss, ReportsThatItHasNoPerSampleLosses) {
  const Loss loss = [](const torch::Tensor& p, const torch::Tensor&) {
    return p.sum();
  };
  EXPECT_FALSE(loss.has_per_sample());
  expect_error<c10::ValueError>(
      [&] { loss.per_sample({kPred}, {kClass}); },
      {"Loss::mean_of"});
  const Loss sum = Loss::mean_of(
      [](const torch::Tensor& p, const torch::Tensor&) { return p.sum(); });
  expect_error<c10::ValueError>(
      [&] { sum.per_sample({kPred}, {kClass}); },
      {"shape []", "2 samples"});
}

TEST(Activate, TurnsOutputsIntoProbabilities) {
  EXPECT_TRUE(torch::allclose(
      activate(kPred.to(torch::kBFloat16), Activation::softmax),
      kPred.softmax(1),
      1e-2,
      1e-2));
  EXPECT_TRUE(
      torch::equal(activate(kPred, Activation::sigmoid), kPred.sigmoid()));
  EXPECT_TRUE(torch::equal(activate(kPred, Activation::exp), kPred.exp()));
  EXPECT_TRUE(torch::equal(activate(kPred, Activation::none), kPred));
}

TEST(Loss, IgnoresDimensionsOfSizeOneInRegression) {
  const auto pred = torch::tensor({{1.f}, {2.f}, {4.f}});
  const auto target = torch::tensor({1.f, 3.f, 5.f});
  const auto of = [&](const Loss& loss, const torch::Tensor& t) {
    return loss({pred}, {t}).item<double>();
  };
  EXPECT_FLOAT_EQ(of(Loss::for_targets({target}), target), 2.f / 3);
  EXPECT_FLOAT_EQ(of(torch::nn::L1Loss(), target), 2.f / 3);
  EXPECT_DOUBLE_EQ(
      of(torch::nn::MSELoss(), target.to(torch::kDouble)),
      2.f / 3);
  EXPECT_FLOAT_EQ(of(torch::nn::MSELoss(), target.to(torch::kInt)), 2.f / 3);
  EXPECT_GT(
      of(torch::nn::BCEWithLogitsLoss(), torch::tensor({true, false, true})),
      0);
  EXPECT_TRUE(torch::equal(
      Loss(torch::nn::MSELoss()).per_sample({pred}, {target}),
      torch::tensor({0.f, 1.f, 1.f})));
  expect_error<c10::ValueError>(
      [&] { of(torch::nn::SmoothL1Loss(), torch::zeros({2})); },
      {"[Loss]", "[3, 1]", "[2]"});
}

TEST(Loss, RequiresClassIndicesOfTheRightDtype) {
  expect_error<c10::ValueError>(
      [] { Loss::for_targets({torch::zeros({2}, torch::kInt)}); },
      {"kInt", ".to(torch::kLong)"});
}

}  // namespace
}  // namespace tern::loss_test
