#include "tern/vision/models/detection/anchors.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/models/detection/fixture.h"

namespace tern::anchors_test {
namespace {

using testing_support::detection_fixture;
using testing_support::empty_levels;
using testing_support::expect_products;
using testing_support::retinanet_anchors;

TEST(AnchorsTest, MatchTorchvision) {
  const std::array<std::array<int64_t, 2>, 2> sizes{{{64, 48}, {43, 37}}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const torch::Tensor anchors = retinanet_anchors(sizes[i][0], sizes[i][1]);
    EXPECT_EQ(anchors.scalar_type(), torch::kFloat);
    expect_products(
        {anchors},
        nlohmann::json::array({detection_fixture()["anchors"][i]}),
        1e-8);
  }
}

TEST(AnchorsTest, AreOrderedByRowAndColumn) {
  AnchorGenerator generator(AnchorOptions{{{4}}, {{1, 4}}});
  EXPECT_EQ(generator->anchors_per_location(), std::vector<int64_t>{2});
  const torch::Tensor anchors =
      generator->forward(20, 33, {torch::empty({1, 1, 2, 3})});
  // 20 / 2 and 33 / 3 pixels apart; height over width is 1, then 4.
  const torch::Tensor expected = torch::tensor(
      {{-2, -2, 2, 2},
       {-1, -4, 1, 4},
       {9, -2, 13, 2},
       {10, -4, 12, 4},
       {20, -2, 24, 2},
       {21, -4, 23, 4},
       {-2, 8, 2, 12},
       {-1, 6, 1, 14},
       {9, 8, 13, 12},
       {10, 6, 12, 14},
       {20, 8, 24, 12},
       {21, 6, 23, 14}},
      torch::kFloat);
  EXPECT_TRUE(anchors.equal(expected)) << anchors;
}

TEST(AnchorsTest, StayInFloatForAnyDtypeOfTheNetwork) {
  AnchorGenerator generator(AnchorOptions::retinanet());
  generator->to(torch::kHalf);
  Tensors levels = empty_levels(64, 48);
  for (torch::Tensor& level : levels) level = level.to(torch::kHalf);
  EXPECT_TRUE(test::bit_equal(
      generator->forward(64, 48, levels),
      retinanet_anchors(64, 48)));
  EXPECT_TRUE(generator->parameters().empty());
  EXPECT_TRUE(generator->buffers().empty());
}

TEST(AnchorsTest, AreTheSameInAClone) {
  const AnchorGenerator generator(AnchorOptions::retinanet());
  const auto clone = std::dynamic_pointer_cast<AnchorGeneratorImpl>(
      generator->clone(torch::Device(torch::kCPU)));
  EXPECT_TRUE(test::bit_equal(
      clone->forward(64, 48, empty_levels(64, 48)),
      retinanet_anchors(64, 48)));
}

TEST(AnchorsTest, RejectInvalidArguments) {
  expect_error<c10::ValueError>(
      [] {
        AnchorGenerator(AnchorOptions{{{32}, {64}}, {{1}}});
      },
      {"[AnchorGenerator]", "sizes for 2 levels", "aspect_ratios for 1"});
  expect_error<c10::ValueError>(
      [] {
        AnchorGenerator(AnchorOptions{{{-1}}, {{1}}});
      },
      {"positive numbers"});
  expect_error<c10::ValueError>(
      [] {
        AnchorGenerator(AnchorOptions::retinanet())
            ->forward(64, 48, {torch::empty({1, 1, 2, 2})});
      },
      {"got 1 feature maps; expected 5"});
}

}  // namespace
}  // namespace tern::anchors_test
