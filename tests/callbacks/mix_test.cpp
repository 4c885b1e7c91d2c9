#include "tern/callbacks/mix.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/losses/losses.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/mixing.h"

namespace tern::mix_test {
namespace {

using namespace testing_support;  // NOLINT

torch::Tensor ce(const torch::Tensor& pred, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(
      pred,
      target,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

TEST(MixUp, MixesInputsAndLossWithItsLambdas) {
  Learner learn(picture_data(), picture_net(), quiet());
  const auto record = std::make_shared<MixedBatches>();
  learn.add<MixUp>().add(record->first()).add(record).fit(1).fit(1);
  const auto mixup = learn.find<MixUp>();
  ASSERT_EQ(record->seen.size(), 8u);
  const MixedBatches::Seen& last = record->seen.back();
  const torch::Tensor lambda = mixup->lambdas();
  const torch::Tensor partners = mixup->partners();
  ASSERT_EQ(lambda.sizes(), torch::IntArrayRef({16}));
  EXPECT_GE(lambda.min().item<float>(), 0.5f);
  EXPECT_TRUE(torch::equal(std::get<0>(partners.sort()), torch::arange(16)));

  const torch::Tensor weight = lambda.view({-1, 1, 1, 1});
  EXPECT_TRUE(torch::allclose(
      last.after,
      weight * last.before + (1 - weight) * last.before.index({partners}),
      1e-5,
      1e-6));
  const torch::Tensor loss =
      (lambda * ce(last.outputs, last.targets) +
       (1 - lambda) * ce(last.outputs, last.targets.index({partners})))
          .mean();
  EXPECT_NEAR(last.loss.item<float>(), loss.item<float>(), 1e-6);
  EXPECT_FALSE(record->validated_with_maker);
}

// For the larger of lambda and 1 - lambda, E (x - 1/2)^2 is the beta
// distribution's variance, 1 / (4 (2 alpha + 1)).
TEST(MixUp, DrawsItsLambdasFromTheBetaDistribution) {
  for (const double alpha : {0.4, 1.0, 4.0}) {
    Learner learn(
        point_data(4096, 0, {.batch_size = 4096, .workers = 0}),
        point_net(),
        quiet());
    learn.add<MixUp>(alpha).fit(1);
    const torch::Tensor lambda =
        learn.find<MixUp>()->lambdas().to(torch::kDouble);
    EXPECT_NEAR(
        (lambda - 0.5).square().mean().item<double>(),
        1 / (4 * (2 * alpha + 1)),
        0.006)
        << alpha;
  }
}

TEST(MixUp, MixesFloatingTargetsThemselves) {
  auto generator = at::detail::createCPUGenerator(3);
  const torch::Tensor x = torch::randn({64, 2}, generator);
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{x * 2 + 1}),
      nullptr,
      {.batch_size = 16, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  const auto record = std::make_shared<MixedBatches>();
  learn.add<MixUp>().add(record->first()).add(record).fit(1);
  for (const auto& seen : record->seen) {
    EXPECT_TRUE(torch::allclose(seen.targets, seen.after * 2 + 1, 1e-5, 1e-5));
  }
}

TEST(MixUp, IsAFunctionOfItsSeed) {
  const auto train = [](uint64_t seed) {
    Learner learn(picture_data(), picture_net(), quiet());
    learn.add<MixUp>(0.4, seed).fit(2);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(1), train(1)));
  EXPECT_FALSE(all_equal(train(1), train(2)));
}

TEST(MixUp, TrainsInEveryPrecision) {
  for (const int precision : {0, 1, 2, 3}) {
    Learner learn(picture_data(), picture_net(), quiet());
    if (precision == 1) learn.to_fp16({.force_fp16 = true});
    if (precision == 2) learn.to_bf16();
    if (precision == 3) learn.to_amp({.dtype = torch::kHalf});
    learn.add<MixUp>().fit(4, 0.03);
    EXPECT_LT(learn.recorder().epochs().back().valid_loss, 0.6) << precision;
  }
}

TEST(MixUp, KeepsTheMemoryFormat) {
  Learner learn(picture_data(), picture_net(), quiet());
  const auto record = std::make_shared<MixedBatches>();
  learn
      .add<LambdaCallback>(
          {.on_batch_begin =
               [](Learner& l) {
                 torch::Tensor& x = l.state().batch_data.inputs[0];
                 x = x.contiguous(torch::MemoryFormat::ChannelsLast);
               },
           .order = -2})
      .add<MixUp>()
      .add(record->first())
      .add(record)
      .fit(1);
  EXPECT_TRUE(
      record->seen[0].after.is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(MixUp, RequiresALossWithPerSampleValues) {
  const auto learner = [](Loss loss) {
    return std::make_unique<Learner>(
        picture_data(),
        picture_net(),
        quiet({.loss = std::move(loss)}));
  };
  const auto own = [](const torch::Tensor& pred, const torch::Tensor& target) {
    return torch::nn::CrossEntropyLoss()(pred, target);
  };
  expect_error<c10::ValueError>(
      [&] { learner(own)->add<MixUp>().fit(1); },
      {"[MixUp]", "Loss::mean_of"});
  learner(Loss::mean_of(ce))->add<MixUp>().fit(1);
  learner(focal_loss())->add<MixUp>().fit(1);
}

// Class targets per image and per pixel, some ignored, with and without class
// weights.
TEST(Mix, WeighsBothTargetsByTheirWeightInTheLoss) {
  const torch::Tensor weight = torch::tensor({1.f, 5.f});
  for (const bool has_weights : {false, true}) {
    for (const bool has_pixels : {false, true}) {
      for (const bool is_cutmix : {false, true}) {
        SCOPED_TRACE(
            testing::Message() << has_weights << has_pixels << is_cutmix);
        torch::manual_seed(5);
        const torch::Tensor x = torch::randn({12, 3, 4, 4});
        torch::Tensor y = (x.select(1, 0) > 0).to(torch::kLong);
        y.masked_fill_(x.select(1, 1) > 0.3, -100);
        if (!has_pixels) y = y.select(1, 0).select(1, 0).clone();
        auto options = torch::nn::CrossEntropyLossOptions();
        if (has_weights) options.weight(weight);
        const auto set =
            std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
        torch::nn::Sequential net(torch::nn::Conv2d(3, 2, 1));
        if (!has_pixels) {
          net = torch::nn::Sequential(
              torch::nn::Flatten(),
              torch::nn::Linear(48, 2));
        }
        Learner learn(
            DataBunch::create(set, set, {.batch_size = 6, .workers = 0}),
            net,
            quiet({.loss = torch::nn::CrossEntropyLoss(options)}));
        is_cutmix ? learn.add<CutMix>() : learn.add<MixUp>();
        const auto mix = learn.find<Mix>();
        const auto terms = [&](const torch::Tensor& pred,
                               const torch::Tensor& target) {
          return torch::cross_entropy_loss(
                     pred,
                     target,
                     has_weights ? weight : torch::Tensor(),
                     at::Reduction::None)
              .reshape({6, -1})
              .sum(1);
        };
        const auto counts = [&](const torch::Tensor& target) {
          const torch::Tensor known = target >= 0;
          const torch::Tensor each =
              has_weights ? weight.index({target.clamp(0)}) : torch::ones({});
          return (each * known).reshape({6, -1}).sum(1);
        };
        learn.add<LambdaCallback>({.on_backward_begin = [&](Learner& l) {
          const torch::Tensor pred = l.state().outputs[0];
          const torch::Tensor own = l.state().batch_data.targets[0];
          const torch::Tensor partner = own.index({mix->partners()});
          const torch::Tensor lambda = mix->lambdas();
          const torch::Tensor counted =
              (lambda * counts(own) + (1 - lambda) * counts(partner)).sum();
          const torch::Tensor expected =
              (lambda * terms(pred, own) + (1 - lambda) * terms(pred, partner))
                  .sum() /
              counted;
          EXPECT_NEAR(
              parts_of(l).step.loss_count,
              counted.item<double>(),
              1e-4);
          EXPECT_NEAR(
              l.state().loss.item<float>(),
              expected.item<float>(),
              1e-5);
        }});
        learn.fit(3);
      }
    }
  }
}

// A floating-point target beside class indices is mixed itself, and both loss
// terms use the mixed target.
TEST(Mix, GivesBothLossesTheMixedFloatingTargets) {
  const torch::Tensor x = torch::randn({12, 2});
  const torch::Tensor classes = (x.select(1, 0) > 0).to(torch::kLong);
  const torch::Tensor numbers = torch::randn({12, 2});
  const auto set =
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{classes, numbers});
  const Loss loss =
      Loss::mean_of([](const Tensors& outputs, const Tensors& targets) {
        return torch::cross_entropy_loss(
                   outputs[0],
                   targets[0],
                   {},
                   at::Reduction::None) +
               (outputs[0] - targets[1]).square().sum(1);
      });
  Learner learn(
      DataBunch::create(set, nullptr, {.batch_size = 12, .workers = 0}),
      torch::nn::Linear(2, 2),
      quiet({.loss = loss}));
  learn.add<MixUp>();
  const auto mix = learn.find<Mix>();
  learn.add<LambdaCallback>({.on_backward_begin = [&](Learner& l) {
    const Batch& batch = l.state().batch_data;
    const torch::Tensor pred = l.state().outputs[0].detach();
    const torch::Tensor lambda = mix->lambdas();
    const torch::Tensor own =
        numbers.index_select(0, torch::tensor(batch.indices, torch::kLong));
    const torch::Tensor mixed = torch::lerp(
        own.index_select(0, mix->partners()),
        own,
        lambda.unsqueeze(1));
    EXPECT_TRUE(torch::allclose(batch.targets[1], mixed));
    const auto entropy = [&](const torch::Tensor& target) {
      return torch::cross_entropy_loss(pred, target, {}, at::Reduction::None);
    };
    const torch::Tensor expected =
        (lambda * entropy(batch.targets[0]) +
         (1 - lambda) *
             entropy(batch.targets[0].index_select(0, mix->partners())) +
         (pred - mixed).square().sum(1))
            .mean();
    EXPECT_NEAR(l.state().loss.item<float>(), expected.item<float>(), 1e-5);
  }});
  learn.fit(2);
}

TEST(Mix, WithATinyAlphaEqualsThePlainLoss) {
  const torch::Tensor weight = torch::tensor({1.f, 5.f});
  const Loss losses[] = {
      torch::nn::CrossEntropyLoss(),
      torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().weight(weight)),
      torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().label_smoothing(0.1)),
      focal_loss(),
      dice_ce_loss(),
      torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().reduction(torch::kSum))};
  for (size_t i = 0; i < std::size(losses); ++i) {
    torch::manual_seed(5);
    const torch::Tensor x = torch::randn({12, 3, 4, 4});
    torch::Tensor y = (x.select(1, 0) > 0).to(torch::kLong);
    if (i < 4) y.masked_fill_(x.select(1, 1) > 0.3, -100);
    if (i == 5) y = y.flatten(1).select(1, 0).clone();
    const auto set = std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
    torch::nn::Sequential net(torch::nn::Conv2d(3, 2, 1));
    if (i == 5) {
      net =
          torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(48, 2));
    }
    Learner learn(
        DataBunch::create(set, set, {.batch_size = 6, .workers = 0}),
        net,
        quiet({.loss = losses[i]}));
    learn.add<MixUp>(1e-6).add<LambdaCallback>(
        {.on_backward_begin = [&](Learner& l) {
          torch::Tensor plain =
              losses[i](l.state().outputs, l.state().batch_data.targets);
          if (i == 5) plain = plain / 6;  // Mix takes the mean over samples
          EXPECT_NEAR(l.state().loss.item<float>(), plain.item<float>(), 1e-5)
              << "loss " << i;
        }});
    learn.fit(2);
  }
}

TEST(Mix, TrainsOnABatchWithOnlyIgnoredTargets) {
  const torch::Tensor x = torch::randn({12, 3, 4, 4});
  const auto set = std::make_shared<TensorDataset>(
      Tensors{x},
      Tensors{torch::full({12, 4, 4}, -100, torch::kLong)});
  Learner learn(
      DataBunch::create(set, nullptr, {.batch_size = 6, .workers = 0}),
      torch::nn::Sequential(torch::nn::Conv2d(3, 2, 1)),
      quiet());
  learn.add<CutMix>().fit(1);
  EXPECT_EQ(learn.recorder().losses(), (std::vector<double>{0, 0}));
  for (const torch::Tensor& weights : parameters_of(learn)) {
    EXPECT_TRUE(weights.isfinite().all().item<bool>());
  }
}

TEST(MixUp, RejectsCutMixOrASecondMixUp) {
  Learner learn(picture_data(), picture_net(), quiet());
  learn.add<MixUp>();
  expect_error<c10::ValueError>(
      [&] { learn.add<CutMix>(); },
      {"MixUp and CutMix", "mix the batch twice"});
  expect_error<c10::ValueError>(
      [&] { learn.add<MixUp>(); },
      {"MixUp and MixUp"});
}

TEST(MixUp, RejectsAnAlphaThatIsNotPositive) {
  for (const double alpha : {0.0, -1.0, double(NAN)}) {
    expect_error<c10::ValueError>(
        [&] { MixUp callback(alpha); },
        {"[MixUp] alpha is"});
  }
}

TEST(CutMix, PastesABoxOfThePartnerIntoEachImage) {
  Learner learn(picture_data(), picture_net(), quiet());
  const auto record = std::make_shared<MixedBatches>();
  std::vector<torch::Tensor> lambdas, partners;
  learn.add<CutMix>()
      .add(record->first())
      .add(record)
      .add<LambdaCallback>(
          {.on_backward_end =
               [&](Learner& l) {
                 const auto mix = l.find<CutMix>();
                 lambdas.push_back(mix->lambdas());
                 partners.push_back(mix->partners());
               }})
      .fit(2)
      .fit(2);
  ASSERT_EQ(record->seen.size(), 16u);
  int boxes = 0;
  for (size_t i = 0; i < record->seen.size(); ++i) {
    const auto& seen = record->seen[i];
    const torch::Tensor partner = seen.before.index({partners[i]});
    const torch::Tensor is_own = seen.after == seen.before;
    EXPECT_TRUE((is_own | (seen.after == partner)).all().item<bool>());
    // The box is the same in every image and channel.
    const torch::Tensor differs = seen.before != partner;
    const torch::Tensor cut = (~is_own).flatten(0, 1).any(0);
    EXPECT_TRUE(
        torch::equal((~is_own) & differs, cut.expand_as(is_own) & differs));
    const auto share = cut.to(torch::kFloat).mean().item<float>();
    EXPECT_NEAR(lambdas[i][0].item<float>(), 1 - share, 1e-6);
    EXPECT_TRUE((lambdas[i] == lambdas[i][0]).all().item<bool>());
    boxes += share > 0 && share < 1;

    const auto ce = [&](const torch::Tensor& target) {
      return torch::nn::functional::cross_entropy(seen.outputs, target);
    };
    const torch::Tensor lambda = lambdas[i][0];
    EXPECT_NEAR(
        seen.loss.item<float>(),
        (lambda * ce(seen.targets) +
         (1 - lambda) * ce(seen.targets.index({partners[i]})))
            .item<float>(),
        1e-6);
  }
  EXPECT_GT(boxes, 8);
  EXPECT_FALSE(record->validated_with_maker);
}

TEST(CutMix, DoesNotChangeTheData) {
  DataBunch data = picture_data();
  const torch::Tensor before =
      data.train->dataset().get_batch({0, 1, 2}, {}).inputs[0].clone();
  Learner learn(data, picture_net(), quiet());
  learn.add<CutMix>().fit(3);
  EXPECT_TRUE(torch::equal(
      data.train->dataset().get_batch({0, 1, 2}, {}).inputs[0],
      before));
}

TEST(CutMix, TrainsInHalf) {
  Learner learn(picture_data(), picture_net(), quiet());
  learn.to_fp16({.force_fp16 = true}).add<CutMix>().fit(4, 0.03);
  EXPECT_LT(learn.recorder().epochs().back().valid_loss, 0.6);
}

TEST(CutMix, RequiresFloatingPointImages) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  learn.add<CutMix>();
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"[CutMix]", "[32, 2] Float", "[N, ..., H, W]"});
  expect_error<c10::ValueError>(
      [] { CutMix callback(-1); },
      {"[CutMix] alpha is -1"});
}

}  // namespace
}  // namespace tern::mix_test
