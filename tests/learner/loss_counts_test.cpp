// The count of a batch's loss is the batch's weight: in the validation loss, in
// the smoothed training loss and in a step with accumulated gradients.
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/losses/losses.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/in_order.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/tiny.h"

namespace tern::loss_counts_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace nn = torch::nn;

constexpr int64_t kClasses = 3, kSide = 4, kVoid = 255;

// Returns class logits per pixel. Has no BatchNorm, whose statistics depend on
// the batch.
nn::Sequential pixel_net(uint64_t seed, torch::ScalarType dtype) {
  torch::manual_seed(static_cast<int64_t>(seed));
  nn::Sequential net(
      nn::Conv2d(2, 6, 1),
      nn::Tanh(),
      nn::Conv2d(6, kClasses, 1));
  net->to(dtype);
  return net;
}

struct Data {
  torch::Tensor inputs, targets;

  // In this order, with this batch size, for training and validation.
  DataBunch of(int64_t batch_size) const {
    return in_order(inputs, targets, batch_size);
  }
};

// A mean-reduced loss and its targets. Some of the samples have ignored pixels,
// others have no counted pixel.
struct Case {
  std::string name;
  Loss loss;
  torch::Tensor targets;
};

torch::Tensor classes(int64_t samples, int64_t ignored) {
  torch::Tensor targets =
      torch::randint(kClasses, {samples, kSide, kSide}, torch::kLong);
  const torch::Tensor share = torch::rand({samples, 1, 1}) * 1.5 - 0.25;
  targets.masked_fill_(torch::rand({samples, kSide, kSide}) < share, ignored);
  targets.narrow(0, samples / 3, samples / 4).fill_(ignored);
  return targets;
}

constexpr uint64_t kCases = 18;

Case random_case(uint64_t which, std::mt19937_64& draw, int64_t samples) {
  const auto numbers = [&] {
    return torch::rand({samples, kClasses, kSide, kSide}, torch::kDouble);
  };
  const auto signs = [&] {
    return (numbers() > 0.5).to(torch::kDouble) * 2 - 1;
  };
  const torch::Tensor weight =
      torch::rand({kClasses}, torch::kDouble).pow(2) * 10;
  const auto plain = [&] {
    return torch::randint(kClasses, {samples, kSide, kSide}, torch::kLong);
  };
  switch (which) {
    case 0:
      return {
          "CrossEntropyLoss",
          nn::CrossEntropyLoss(
              nn::CrossEntropyLossOptions().ignore_index(kVoid)),
          classes(samples, kVoid)};
    case 1:
      return {
          "CrossEntropyLoss with weights",
          nn::CrossEntropyLoss(nn::CrossEntropyLossOptions()
                                   .weight(weight)
                                   .ignore_index(1)
                                   .label_smoothing(draw() % 2 ? 0.1 : 0)),
          classes(samples, 1)};
    case 2:
      return {
          "CrossEntropyLoss of probabilities",
          nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight)),
          numbers().softmax(1)};
    case 3:
      return {
          "NLLLoss",
          nn::NLLLoss(nn::NLLLossOptions().weight(weight).ignore_index(kVoid)),
          classes(samples, kVoid)};
    case 4:
      return {
          "label_smoothing_cross_entropy",
          label_smoothing_cross_entropy(0.2),
          classes(samples, -100)};
    case 5:
      return {
          "focal_loss",
          focal_loss({.gamma = draw() % 2 ? 0.5 : 2, .weight = weight}),
          classes(samples, -100)};
    case 6:
      return {"dice_ce_loss", dice_ce_loss(), plain()};
    case 7:
      return {
          "dice_ce_loss without dice",
          dice_ce_loss(
              {.lambda_dice = 0, .weight = weight, .ignore_index = kVoid}),
          classes(samples, kVoid)};
    case 8:
      return {
          "dice_ce_loss without cross-entropy",
          dice_ce_loss({.lambda_ce = 0, .ignore_index = kVoid, .smooth = 0}),
          classes(samples, kVoid)};
    case 9:
      return {"MSELoss", nn::MSELoss(), numbers()};
    case 10:
      return {"SmoothL1Loss", nn::SmoothL1Loss(), numbers()};
    case 11:
      return {
          "BCEWithLogitsLoss",
          nn::BCEWithLogitsLoss(),
          (numbers() > 0.5).to(torch::kDouble)};
    case 12:
      return {
          "KLDivLoss",
          nn::KLDivLoss(
              draw() % 2 ? nn::KLDivLossOptions(torch::kMean)
                         : nn::KLDivLossOptions(torch::kBatchMean)),
          numbers()};
    case 13:
      return {"PoissonNLLLoss", nn::PoissonNLLLoss(), numbers()};
    case 14:
      return {"SoftMarginLoss", nn::SoftMarginLoss(), signs()};
    case 15:
      return {"HingeEmbeddingLoss", nn::HingeEmbeddingLoss(), signs()};
    case 16:
      return {
          "a function",
          Loss([](const torch::Tensor& pred, const torch::Tensor& target) {
            return nn::functional::l1_loss(pred, target);
          }),
          numbers()};
    default:
      return {
          "Loss::mean_of",
          Loss::mean_of(
              [](const torch::Tensor& pred, const torch::Tensor& target) {
                return (pred.select(1, 0) - target).square() * (target > 0);
              },
              [](const Tensors&, const Tensors& targets) {
                return (targets[0] > 0).flatten(1).sum(1);
              }),
          torch::randn({samples, kSide, kSide}, torch::kDouble)};
  }
}

std::unique_ptr<Learner>
learner(const Data& data, int64_t batch_size, uint64_t seed, const Loss& loss) {
  return std::make_unique<Learner>(
      data.of(batch_size),
      pixel_net(seed, data.inputs.scalar_type()),
      quiet(
          {.loss = loss,
           .optimizer =
               optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1)),
           .weight_decay = 0}));
}

double largest_difference(Learner& a, Learner& b) {
  const Tensors of_a = parameters_of(a), of_b = parameters_of(b);
  double largest = 0;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const double difference = (of_a[i] - of_b[i]).abs().max().item<double>();
    largest =
        std::isnan(difference) ? difference : std::max(largest, difference);
  }
  return largest;
}

TEST(LossCounts, AccumulatedBatchesEqualTheJointBatchForEveryMeanLoss) {
  for_random_cases(kCases, [](uint64_t seed) {
    std::mt19937_64 draw(seed);
    torch::manual_seed(static_cast<int64_t>(seed));
    const int64_t samples = 6 + static_cast<int64_t>(draw() % 20);
    const Case c = random_case(seed % kCases, draw, samples);
    SCOPED_TRACE(c.name);
    const Data data{
        torch::randn({samples, 2, kSide, kSide}, torch::kDouble),
        c.targets};
    const auto joint = learner(data, samples, seed, c.loss);
    joint->fit(1, 0.1).fit(1, 0.1);
    const int64_t size = 1 + static_cast<int64_t>(draw() % samples);
    const auto split = learner(data, size, seed, c.loss);
    split->add<GradientAccumulation>({.batches = (samples + size - 1) / size});
    split->fit(1, 0.1).fit(1, 0.1);
    EXPECT_LT(largest_difference(*split, *joint), 1e-12)
        << "batches of " << size;
    EXPECT_NEAR(split->validate().loss, joint->validate().loss, 1e-12)
        << "batches of " << size;
    EXPECT_NEAR(
        split->recorder().epochs().back().valid_loss,
        joint->validate().loss,
        1e-12);
  });
}

// The classes are separated by the sign of the first channel.
Data half_void(int64_t samples, torch::ScalarType dtype = torch::kFloat) {
  torch::manual_seed(3);
  Data data{torch::randn({samples, 2, kSide, kSide}), {}};
  data.targets = (data.inputs.select(1, 0) > 0).to(torch::kLong);
  data.inputs = data.inputs.to(dtype);
  return data;
}

TEST(LossCounts, ABatchWithoutCountedTargetsDoesNotMakeTheFitNaN) {
  Data data = half_void(16);
  data.targets.narrow(0, 4, 4).fill_(kVoid);
  const Loss losses[] = {
      nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().ignore_index(kVoid)),
      nn::CrossEntropyLoss(
          nn::CrossEntropyLossOptions().ignore_index(kVoid).label_smoothing(
              0.1)),
      // Only the second batch contains class 2.
      nn::CrossEntropyLoss(
          nn::CrossEntropyLossOptions().weight(torch::tensor({1.f, 2.f, 0.f}))),
      dice_ce_loss({.ignore_index = kVoid}),
      focal_loss({.gamma = 0.5})};
  const std::vector<void (*)(Learner&)> modes = {
      [](Learner&) {},
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_amp({.dtype = torch::kHalf}); },
      [](Learner& l) { l.add<GradientAccumulation>({.batches = 2}); }};
  for (size_t loss = 0; loss < std::size(losses); ++loss) {
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      SCOPED_TRACE(testing::Message() << "loss " << loss << ", mode " << mode);
      Data of = data;
      const int64_t ignored = losses[loss].ignore_index();
      of.targets = data.targets.masked_fill(
          data.targets == kVoid,
          loss == 2 ? 2 : ignored);
      const auto learn = learner(of, 4, 1, losses[loss]);
      modes[mode](*learn);
      learn->add<TerminateOnNaN>().fit(1, 0.1);
      EXPECT_EQ(learn->recorder().losses().size(), 4u);
      ASSERT_EQ(learn->recorder().epochs().size(), 1u);
      EXPECT_TRUE(std::isfinite(learn->recorder().epochs()[0].train_loss));
      EXPECT_TRUE(std::isfinite(learn->recorder().epochs()[0].valid_loss));
      EXPECT_TRUE(learn->recorder().skipped_steps().empty());
      for (const torch::Tensor& weights : parameters_of(*learn)) {
        EXPECT_TRUE(weights.isfinite().all().item<bool>());
      }
    }
  }
}

TEST(LossCounts, ABatchWithoutCountedTargetsChangesNoWeights) {
  Data data = half_void(12);
  data.targets.narrow(0, 4, 4).fill_(-100);
  const Loss loss = nn::CrossEntropyLoss();
  const auto learn = learner(data, 4, 1, loss);
  std::vector<double> smooth;
  Tensors before;
  learn->add<LambdaCallback>(
      {.on_batch_begin = [&](Learner& l) { before = parameters_of(l); },
       .on_batch_end =
           [&](Learner& l) {
             if (!l.state().training) return;
             smooth.push_back(l.recorder().smooth_losses().back());
             const bool is_same = all_equal(before, parameters_of(l));
             EXPECT_EQ(is_same, l.state().batch == 1);
           }});
  learn->fit(1, 0.1);
  EXPECT_EQ(smooth[1], smooth[0]);
  EXPECT_NE(smooth[2], smooth[1]);
  EXPECT_EQ(learn->recorder().losses()[1], 0);
}

// Exponential average with 0.98, weighted by the batches' counts.
TEST(LossCounts, TheSmoothedLossWeightsBatchesByTheirCounts) {
  Data data = half_void(12);
  data.targets.narrow(0, 4, 4).narrow(1, 1, 3).fill_(-100);
  data.targets.narrow(0, 0, 4).narrow(1, 2, 2).fill_(-100);
  const auto learn = learner(data, 4, 1, nn::CrossEntropyLoss());
  learn->fit(1, 0.1);
  const auto& losses = learn->recorder().losses();
  const std::vector<double> counts = {32, 16, 64};
  double sum = 0, weight = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    sum = 0.98 * sum + 0.02 * counts[i] * losses[i];
    weight = 0.98 * weight + 0.02 * counts[i];
    EXPECT_NEAR(learn->recorder().smooth_losses()[i], sum / weight, 1e-12);
  }
  EXPECT_NEAR(learn->recorder().epochs()[0].train_loss, sum / weight, 1e-12);
  Recorder resumed;
  resumed.load_state_dict(learn->recorder().state_dict());
  EXPECT_NEAR(resumed.loss_plot().curves.at(1).y.back(), sum / weight, 1e-12);
}

TEST(LossCounts, LrFindSkipsABatchWithoutCountedTargets) {
  Data data = half_void(16);
  data.targets.narrow(0, 0, 4).fill_(-100);
  data.targets.narrow(0, 8, 4).fill_(-100);
  const auto learn = learner(data, 4, 1, nn::CrossEntropyLoss());
  const LrFind found =
      learn->lr_find({.start = 1e-6, .end = 1e-5, .num_it = 12});
  ASSERT_EQ(found.losses.size(), 11u);
  EXPECT_EQ(found.lrs.size(), 11u);
  EXPECT_DOUBLE_EQ(found.lrs[0], 1e-6);
  EXPECT_NEAR(found.losses[1], found.losses[0], 1e-12);
  EXPECT_NEAR(found.losses.back(), 1.1, 0.5);
}

// The count of a first batch of one pixel says little about the others.
TEST(LossCounts, AWindowThatStartsWithASmallCountTrainsIn16Bits) {
  Data data = half_void(32);
  data.targets.narrow(0, 0, 4).fill_(-100);
  data.targets[0][0][0] = 1;
  for (const bool first_is_large : {false, true}) {
    Data of = data;
    if (first_is_large) {
      of.targets = data.targets.flip(0);
      of.inputs = data.inputs.flip(0);
    }
    const auto train = [&](int64_t size) {
      auto learn = learner(of, size, 1, nn::CrossEntropyLoss());
      learn->to_fp16({.loss_scale = 16384, .force_fp16 = true});
      if (size < 32) learn->add<GradientAccumulation>({.batches = 32 / size});
      learn->fit(1, 0.1);
      EXPECT_TRUE(learn->recorder().skipped_steps().empty());
      learn->to_fp32();
      return learn;
    };
    EXPECT_LT(largest_difference(*train(4), *train(32)), 2e-4);
  }
}

}  // namespace
}  // namespace tern::loss_counts_test
