#include "tern/learner/detections.h"

#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/models/detection/fixture.h"

namespace tern::detections_test {
namespace {

using testing_support::detection_fixture;
using testing_support::expect_products;
using testing_support::retinanet_anchors;
using testing_support::some;

constexpr int64_t kImages = 2, kClasses = 4;

// Returns the same outputs as the script.
Tensors outputs(int64_t index) {
  const int64_t height = 64 + 8 * (index % 5), width = 96 - 5 * (index % 7);
  const torch::Tensor anchors = retinanet_anchors(height, width);
  const int64_t count = anchors.size(0);
  const std::array<int64_t, 3> wide{0, 2, 4};
  return {
      (4 * some({kImages, count, kClasses}, index + 500) - wide[index % 3])
          .to(torch::kFloat),
      some({kImages, count, 4}, index + 600).to(torch::kFloat),
      anchors.expand({kImages, -1, -1}),
      torch::tensor({{height, width}, {height, width}}, torch::kFloat)};
}

DetectionOptions options(int64_t index) {
  DetectionOptions all;
  if (index % 2 != 0) {
    all.topk_candidates = 40;
    all.detections_per_img = 12;
  }
  if (index % 3 == 2) {
    all.score_thresh = 0.4;
    all.nms_thresh = 0.3;
  }
  return all;
}

TEST(DetectionsTest, MatchTorchvisionForRandomOutputs) {
  const nlohmann::json& all = detection_fixture()["detections"];
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    const Tensors found = decode_detections(outputs(i), options(i));
    const int64_t most = options(i).detections_per_img;
    ASSERT_EQ(found[0].sizes(), (std::vector<int64_t>{kImages, most, 4}));
    ASSERT_EQ(found[1].sizes(), (std::vector<int64_t>{kImages, most}));
    for (int64_t image = 0; image < kImages; ++image) {
      const testing::ScopedTrace trace(
          __FILE__,
          __LINE__,
          std::to_string(i) + "/" + std::to_string(image));
      const nlohmann::json& expected = all[i][image];
      const torch::Tensor labels = found[2][image];
      const torch::Tensor scores = found[1][image].to(torch::kDouble);
      const int64_t count = (labels >= 0).sum().item<int64_t>();
      EXPECT_TRUE((labels.slice(0, 0, count) >= 0).all().item<bool>());
      EXPECT_EQ(scores.slice(0, count).abs().sum().item<double>(), 0);
      EXPECT_EQ(found[0][image].slice(0, count).abs().sum().item<float>(), 0);
      expect_products({scores.slice(0, 0, count)}, expected["scores"], 1e-6);
      // The count and the sum for each class, as the order of equal scores is
      // undefined.
      for (int64_t c = 0; c < kClasses; ++c) {
        const torch::Tensor mask = (labels == c).to(torch::kDouble);
        const torch::Tensor sums = torch::cat(
            {mask.sum().reshape(1),
             (scores * mask).sum().reshape(1),
             (found[0][image] * (scores * mask).unsqueeze(1)).sum(0)});
        EXPECT_TRUE(test::all_close(
            sums,
            torch::tensor(
                expected["classes"][c].get<std::vector<double>>(),
                torch::kDouble),
            {1e-6, 1e-6}));
      }
    }
  }
}

TEST(DetectionsTest, AreSortedByScoreAndClippedToTheirImage) {
  Tensors y = outputs(0);
  y[3][1][0] = 30;  // the second image is 30 pixels high
  const Tensors found = decode_detections(y);
  EXPECT_TRUE(
      (found[1].slice(1, 1) <= found[1].slice(1, 0, -1)).all().item<bool>());
  EXPECT_LE(found[0][1].select(1, 3).max().item<float>(), 30);
  EXPECT_GT(found[0][0].select(1, 3).max().item<float>(), 30);
  EXPECT_GE(found[0].min().item<float>(), 0);
}

TEST(DetectionsTest, AreTheSameWithGivenLevels) {
  const Tensors y = outputs(1);  // 72 x 91 pixels
  DetectionOptions given = options(1);
  given.anchors_per_level = {972, 270, 81, 36, 9};
  const Tensors expected = decode_detections(y, options(1));
  const test::HostReads reads;
  const Tensors found = decode_detections(y, given);
  EXPECT_EQ(reads.count(), 0) << "synchronizes with the device";
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i].equal(expected[i]));
  Tensors empty;
  for (const torch::Tensor& output : y) empty.push_back(output.slice(0, 0, 0));
  for (const DetectionOptions& some : {given, options(1)}) {
    EXPECT_EQ(decode_detections(empty, some)[0].size(0), 0);
  }
}

TEST(DetectionsTest, SupportTinyImagesWhoseLevelsHaveOnePosition) {
  // Each level has one position, around (0, 0).
  const torch::Tensor anchors = retinanet_anchors(8, 8);
  ASSERT_EQ(anchors.size(0), 45);
  torch::Tensor logits = torch::full({1, 45, 2}, -9.f);
  logits[0][3][1] = 2;
  logits[0][40][0] = 3;
  const Tensors found = decode_detections(
      {logits,
       torch::zeros({1, 45, 4}),
       anchors.unsqueeze(0),
       torch::tensor({{8., 8.}})},
      {.detections_per_img = 3});
  EXPECT_TRUE(found[2].equal(torch::tensor({{0, 1, -1}})));
  EXPECT_FLOAT_EQ(
      found[1][0][1].item<float>(),
      torch::sigmoid(logits[0][3][1]).item<float>());
}

TEST(DetectionsTest, AreEmptyBelowTheScoreThreshold) {
  Tensors y = outputs(0);
  y[0].fill_(-9);
  const Tensors found = decode_detections(y);
  EXPECT_TRUE((found[2] == -1).all().item<bool>());
  EXPECT_EQ(found[0].abs().sum().item<float>(), 0);
  y[0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE((decode_detections(y)[2] == -1).all().item<bool>());
  y[0][0][5][2] = 1;
  EXPECT_EQ((decode_detections(y)[2] == 2).sum().item<int64_t>(), 1);
}

TEST(DetectionsTest, AreComputedInFloatFor16BitOutputs) {
  Tensors y = outputs(3), floats = y;
  for (size_t i = 0; i < 2; ++i) {
    y[i] = y[i].to(torch::kBFloat16);
    floats[i] = y[i].to(torch::kFloat);
  }
  const Tensors found = decode_detections(y);
  const Tensors expected = decode_detections(floats);
  EXPECT_EQ(found[0].scalar_type(), torch::kFloat);
  EXPECT_EQ(found[1].scalar_type(), torch::kFloat);
  // Many scores are equal, so their order is undefined.
  EXPECT_TRUE(found[1].slice(1, 0, 5).equal(expected[1].slice(1, 0, 5)));
}

TEST(DetectionsTest, RejectInvalidArguments) {
  const Tensors y = outputs(0);
  expect_error<c10::ValueError>(
      [&] {
        decode_detections({y[0], y[1], y[2]});
      },
      {"[decode_detections] outputs are", "image_sizes [N, 2]"});
  expect_error<c10::ValueError>(
      [&] { decode_detections(y, {.score_thresh = 2}); },
      {"[decode_detections] score_thresh is 2"});
  expect_error<c10::ValueError>(
      [&] {
        decode_detections(y, {.anchors_per_level = {1, 2}});
      },
      {"[decode_detections] anchors_per_level is {1, 2}"});
  expect_error<c10::ValueError>(
      [&] {
        decode_detections({y[0], y[1], y[2] + 1, y[3]});
      },
      {"[decode_detections] 0 of ", ".anchors_per_level"});
}

}  // namespace
}  // namespace tern::detections_test
