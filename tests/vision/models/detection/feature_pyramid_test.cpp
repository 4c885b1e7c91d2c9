#include "tern/vision/models/detection/feature_pyramid.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/model.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/models/detection/fixture.h"

namespace tern::feature_pyramid_test {
namespace {

using testing_support::detection_fixture;
using testing_support::expect_products;
using testing_support::fill_as_python;
using testing_support::some;

const std::vector<int64_t> kChannels = {6, 8, 10};

Tensors maps() {
  return {
      some({2, 6, 13, 9}, 1),
      some({2, 8, 7, 5}, 2),
      some({2, 10, 4, 3}, 3)};
}

TEST(FeaturePyramidTest, MatchesTorchvision) {
  for (const auto& [name, extra] :
       {std::pair("none", ExtraLevels::none),
        std::pair("max_pool", ExtraLevels::max_pool)}) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, name);
    FeaturePyramidNetwork fpn(
        kChannels,
        FeaturePyramidOptions{.out_channels = 4, .extra = extra});
    fpn->to(torch::kDouble);
    fill_as_python(Model(fpn));
    const Tensors levels = fpn->forward(maps());
    const nlohmann::json& expected = detection_fixture()["pyramid"][name];
    ASSERT_EQ(levels.size(), expected.size());
    expect_products(levels, expected, 1e-8);
  }
}

TEST(FeaturePyramidTest, AddsTheGivenExtraLevels) {
  const auto sizes = [](ExtraLevels extra) {
    FeaturePyramidNetwork fpn(
        kChannels,
        FeaturePyramidOptions{.out_channels = 4, .extra = extra});
    fpn->to(torch::kDouble);
    std::vector<int64_t> heights;
    for (const torch::Tensor& level : fpn->forward(maps())) {
      EXPECT_EQ(level.size(1), 4);
      heights.push_back(level.size(2));
    }
    return heights;
  };
  using Heights = std::vector<int64_t>;
  EXPECT_EQ(sizes(ExtraLevels::none), (Heights{13, 7, 4}));
  EXPECT_EQ(sizes(ExtraLevels::max_pool), (Heights{13, 7, 4, 2}));
  EXPECT_EQ(sizes(ExtraLevels::p6p7_of_p5), (Heights{13, 7, 4, 2, 1}));
  EXPECT_EQ(sizes(ExtraLevels::p6p7_of_c5), (Heights{13, 7, 4, 2, 1}));
}

TEST(FeaturePyramidTest, ComputesTheLastLevelsFromC5OrP5) {
  for (const bool of_c5 : {false, true}) {
    FeaturePyramidNetwork fpn(
        kChannels,
        FeaturePyramidOptions{
            .out_channels = 4,
            .extra =
                of_c5 ? ExtraLevels::p6p7_of_c5 : ExtraLevels::p6p7_of_p5});
    fpn->to(torch::kDouble);
    const Tensors levels = fpn->forward(maps());
    const auto last = std::dynamic_pointer_cast<LastLevelP6P7Impl>(
        fpn->named_children()["extra_blocks"]);
    const Tensors extra = last->forward(of_c5 ? maps()[2] : levels[2]);
    EXPECT_TRUE(test::bit_equal(levels[3], extra[0]));
    EXPECT_TRUE(test::bit_equal(levels[4], extra[1]));
  }
}

TEST(FeaturePyramidTest, HasTorchvisionsInitialWeights) {
  torch::manual_seed(1);
  FeaturePyramidNetwork fpn(
      std::vector<int64_t>{64, 128},
      FeaturePyramidOptions{.extra = ExtraLevels::p6p7_of_c5});
  for (const auto& item : fpn->named_parameters()) {
    if (item.key().ends_with("bias")) {
      EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();
      continue;
    }
    // Uniform with a variance of 1 / fan_in.
    const torch::Tensor& weight = item.value();
    const double bound = std::sqrt(
        3.0 * static_cast<double>(weight.size(0)) /
        static_cast<double>(weight.numel()));
    EXPECT_NEAR(weight.abs().max().item<double>(), bound, 0.01 * bound)
        << item.key();
    EXPECT_NEAR(weight.std().item<double>(), bound / std::sqrt(3), 0.02 * bound)
        << item.key();
  }
}

TEST(FeaturePyramidTest, RejectsInvalidArguments) {
  expect_error<c10::ValueError>(
      [] { FeaturePyramidNetwork(std::vector<int64_t>{}); },
      {"[FeaturePyramidNetwork] in_channels is {}"});
  expect_error<c10::ValueError>(
      [] {
        FeaturePyramidNetwork fpn(kChannels);
        fpn->forward({maps()[0]});
      },
      {"got 1 feature maps; expected 3"});
  expect_error<c10::ValueError>(
      [] { LastLevelP6P7(0, 4); },
      {"[LastLevelP6P7] in_channels is 0"});
}

}  // namespace
}  // namespace tern::feature_pyramid_test
