#include "tern/learner/compare_predictions.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tern/learner/decode_predictions.h"
#include "tern/tests/support/expect_error.h"

namespace tern::compare_predictions_test {
namespace {

using Indices = std::vector<int64_t>;

/// Decodes [N, ...] outputs.
std::vector<Prediction> decoded_all(
    const torch::Tensor& outputs,
    const OutputInfo& info) {
  std::vector<Prediction> predictions;
  for (const torch::Tensor& output : outputs.unbind()) {
    predictions.push_back(decode({output}, {info}));
  }
  return predictions;
}

PredictionDifference compare(
    const torch::Tensor& outputs,
    const torch::Tensor& reference,
    const OutputInfo& info) {
  return compare_predictions(
      decoded_all(outputs, info),
      decoded_all(reference, info));
}

const OutputInfo kClasses{.names = {"a", "b", "c"}};

TEST(ComparePredictions, CountsEqualClasses) {
  const torch::Tensor reference = torch::tensor(
      {{0.7, 0.2, 0.1}, {0.4, 0.5, 0.1}, {0.1, 0.1, 0.8}, {0.5, 0.4, 0.1}});
  torch::Tensor outputs = reference.clone();
  outputs[1] = torch::tensor({0.51, 0.39, 0.1});
  const PredictionDifference result = compare(outputs, reference, kClasses);
  EXPECT_EQ(result.samples, 4);
  EXPECT_EQ(result.equal_labels, 0.75);
  EXPECT_EQ(result.changed, Indices{1});
  EXPECT_NEAR(result.largest_difference, 0.11, 1e-7);
  EXPECT_NEAR(
      result.relative_error,
      (outputs - reference).norm().item<double>() /
          reference.norm().item<double>(),
      1e-7);
  EXPECT_EQ(
      result.to_string(),
      "4 samples: 75% of the labels are equal; outputs differ by at most "
      "0.11, relative error 0.109");
}

TEST(ComparePredictions, EqualPredictionsDoNotDiffer) {
  const torch::Tensor outputs = torch::rand({5, 3}).softmax(1);
  const PredictionDifference result = compare(outputs, outputs, kClasses);
  EXPECT_EQ(result.equal_labels, 1);
  EXPECT_TRUE(result.changed.empty());
  EXPECT_EQ(result.largest_difference, 0);
  EXPECT_EQ(result.relative_error, 0);
}

TEST(ComparePredictions, ASampleWithSeveralClassesIsEqualIfAllAre) {
  const OutputInfo info{
      .kind = TargetKind::multi_category,
      .names = {"a", "b", "c"}};
  const torch::Tensor reference =
      torch::tensor({{0.7, 0.6, 0.1}, {0.4, 0.2, 0.1}});
  const PredictionDifference result = compare(
      torch::tensor({{0.7, 0.4, 0.1}, {0.3, 0.1, 0.4}}),
      reference,
      info);
  EXPECT_EQ(result.equal_labels, 0.5);
  EXPECT_EQ(result.changed, Indices{0});
}

TEST(ComparePredictions, CountsEqualPixelsOfMasks) {
  const OutputInfo info{.kind = TargetKind::mask, .names = {"a", "b"}};
  torch::Tensor reference = torch::zeros({2, 2, 4, 5});
  reference.select(1, 0).fill_(1);
  torch::Tensor outputs = reference.clone();
  outputs[1][1][2][3] = 2;
  const PredictionDifference result = compare(outputs, reference, info);
  EXPECT_EQ(result.equal_labels, 39.0 / 40);
  EXPECT_EQ(result.changed, Indices{1});
}

TEST(ComparePredictions, NumbersHaveNoClasses) {
  const OutputInfo info{.kind = TargetKind::number};
  const PredictionDifference result = compare(
      torch::tensor({{1.0}, {2.5}}),
      torch::tensor({{1.0}, {2.0}}),
      info);
  EXPECT_FALSE(result.equal_labels);
  EXPECT_TRUE(result.changed.empty());
  EXPECT_EQ(result.largest_difference, 0.5);
  EXPECT_EQ(
      result.to_string(),
      "2 samples: outputs differ by at most 0.5, relative error 0.224");
}

TEST(ComparePredictions, PairsBoxesOfOneClassThatOverlap) {
  const OutputInfo info{
      .kind = TargetKind::boxes,
      .names = {"a", "b"},
      .activation = Activation::detections};
  const auto found = [&](const std::vector<std::vector<float>>& boxes,
                         const std::vector<float>& scores,
                         const Indices& labels) {
    torch::Tensor places = torch::empty({std::ssize(boxes), 4});
    for (size_t i = 0; i < boxes.size(); ++i) {
      places[static_cast<int64_t>(i)] = torch::tensor(boxes[i]);
    }
    return decode(
        {places, torch::tensor(scores), torch::tensor(labels, torch::kLong)},
        {info});
  };
  const Prediction reference = found(
      {{0, 0, 10, 10}, {20, 20, 30, 30}, {50, 50, 60, 60}},
      {0.9F, 0.8F, 0.7F},
      {0, 1, 0});
  // The first has a partner; the second a box of another class; the third one
  // that is too far away.
  const Prediction one = found(
      {{21, 20, 30, 30}, {1, 0, 10, 10}, {57, 50, 67, 60}},
      {0.9F, 0.75F, 0.7F},
      {0, 0, 0});
  const PredictionDifference result = compare_predictions({one}, {reference});
  EXPECT_NEAR(*result.equal_labels, 1.0 / 3, 1e-12);
  EXPECT_EQ(result.changed, Indices{0});
  EXPECT_NEAR(result.largest_difference, 0.9, 1e-6);  // of a box from none
  const Prediction near = found(
      {{0, 0, 10, 10}, {20, 20, 30, 30}, {50, 50, 60, 60}},
      {0.9F, 0.65F, 0.7F},
      {0, 1, 0});
  const PredictionDifference alike = compare_predictions({near}, {reference});
  EXPECT_EQ(alike.equal_labels, 1);
  EXPECT_NEAR(alike.largest_difference, 0.15, 1e-6);
  // Two boxes cannot have the same partner.
  const Prediction twice =
      found({{0, 0, 10, 10}, {0, 0, 10, 10}}, {0.9F, 0.8F}, {0, 0});
  const Prediction once = found({{0, 0, 10, 10}}, {0.9F}, {0});
  EXPECT_NEAR(
      *compare_predictions({twice}, {once}).equal_labels,
      2.0 / 3,
      1e-12);
  EXPECT_NEAR(
      *compare_predictions({once}, {twice}).equal_labels,
      2.0 / 3,
      1e-12);
  const Prediction none = found({}, {}, {});
  EXPECT_EQ(compare_predictions({none}, {none}).equal_labels, 1);
  EXPECT_EQ(compare_predictions({none}, {once}).equal_labels, 0);
}

TEST(ComparePredictions, EachOutputHasItsOwnDifference) {
  const OutputInfo mask{.kind = TargetKind::mask, .names = {"a", "b"}};
  const auto predict = [&](float pixel, float probability) {
    torch::Tensor pixels = torch::zeros({2, 4, 5});
    pixels[1][2][3] = pixel;
    return decode(
        {pixels, torch::tensor({probability, 1 - probability})},
        {mask, {.names = {"c", "d"}}});
  };
  const PredictionDifference result = compare_predictions(
      {predict(1, 0.25), predict(0, 0.25)},
      {predict(0, 0.75), predict(0, 0.25)});
  ASSERT_EQ(result.outputs.size(), 2);
  EXPECT_EQ(result.equal_labels, 39.0 / 40);
  EXPECT_EQ(result.outputs[0].equal_labels, 39.0 / 40);
  EXPECT_EQ(result.outputs[1].equal_labels, 0.5);
  EXPECT_EQ(result.outputs[1].changed, Indices{0});
  EXPECT_EQ(result.outputs[1].largest_difference, 0.5);
  EXPECT_TRUE(result.to_string().starts_with("output 0: 2 samples: 97.5%"));
  EXPECT_NE(result.to_string().find("\noutput 1: "), std::string::npos);
  expect_error<c10::ValueError>(
      [&] {
        compare_predictions(
            {predict(0, 0.5)},
            {decode({torch::zeros({2, 4, 5})}, {mask})});
      },
      {"sample 0 has 2 outputs"});
}

TEST(ComparePredictions, ReportsNaN) {
  torch::Tensor reference = torch::tensor({{0.7, 0.3}, {0.4, 0.6}});
  torch::Tensor outputs = reference.clone();
  outputs[0][0] = NAN;
  const OutputInfo info{.names = {"a", "b"}};
  EXPECT_TRUE(std::isnan(compare(outputs, reference, info).largest_difference));
  reference[0][0] = NAN;
  EXPECT_EQ(compare(outputs, reference, info).largest_difference, 0);
}

TEST(ComparePredictions, RejectsPredictionsOfDifferentSamplesOrModels) {
  const std::vector<Prediction> three =
      decoded_all(torch::rand({2, 3}), kClasses);
  expect_error<c10::ValueError>(
      [&] { compare_predictions(three, {three[0]}); },
      {"there are 2 predictions and 1 in the reference"});
  expect_error<c10::ValueError>(
      [&] {
        compare_predictions(three, decoded_all(torch::rand({2, 4}), kClasses));
      },
      {"the outputs for sample 0", "[3] Float", "[4] Float"});
  expect_error<c10::ValueError>(
      [&] {
        compare_predictions(
            three,
            decoded_all(torch::rand({2, 3}), {.kind = TargetKind::number}));
      },
      {"sample 0", "different kinds"});
}

}  // namespace
}  // namespace tern::compare_predictions_test
