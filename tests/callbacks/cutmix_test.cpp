#include "tern/callbacks/cutmix.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include "tern/callbacks/mixed_precision.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/mixing.h"

namespace tern::cutmix_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(CutMix, PutsABoxOfThePartnerIntoEachImage) {
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

TEST(CutMix, LeavesTheDataAsItIs) {
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

TEST(CutMix, WantsFloatingImages) {
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
}  // namespace tern::cutmix_test
