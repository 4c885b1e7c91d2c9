#include "tern/vision/interpret/confusion_matrix.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::confusion_matrix_test {
namespace {

using Names = std::vector<std::string>;

std::vector<int64_t> cells(const ConfusionMatrix& matrix) {
  const torch::Tensor counts = matrix.counts().contiguous();
  const auto* const first = counts.const_data_ptr<int64_t>();
  return {first, first + counts.numel()};
}

// scikit-learn: confusion_matrix([0, 0, 1, 2, 2], [0, 2, 1, 2, 0])
TEST(ConfusionMatrix, HasActualClassesInRowsAndPredictedOnesInColumns) {
  const torch::Tensor targets = torch::tensor({0, 0, 1, 2, 2});
  const torch::Tensor predicted = torch::tensor({0, 2, 1, 2, 0});
  const std::vector<int64_t> expected = {1, 0, 1, 0, 1, 0, 1, 0, 1};
  EXPECT_EQ(cells({predicted, targets}), expected);
  EXPECT_EQ(
      cells({predicted.to(torch::kInt), targets.to(torch::kShort)}),
      expected);
  const torch::Tensor logits =
      torch::one_hot(predicted, 3).to(torch::kBFloat16) - 0.5;
  const ConfusionMatrix matrix(
      logits,
      targets,
      {.classes = {"cat", "dog", "owl"}});
  EXPECT_EQ(cells(matrix), expected);
  EXPECT_EQ(matrix.classes(), (Names{"cat", "dog", "owl"}));
  EXPECT_DOUBLE_EQ(matrix.report().classes[0].precision, 0.5);
  ASSERT_EQ(matrix.most_confused().size(), 2u);
  EXPECT_EQ(matrix.most_confused()[0].actual, "cat");
  EXPECT_EQ(matrix.most_confused()[0].predicted, "owl");
  EXPECT_TRUE(matrix.most_confused(2).empty());
}

TEST(ConfusionMatrix, CountsPixelsExceptThoseOfTheIgnoredClass) {
  torch::Tensor logits = torch::zeros({1, 3, 2, 2});
  logits[0][1] = 1;  // all pixels are predicted as class 1
  const torch::Tensor masks = torch::tensor({{{0, 1}, {2, 255}}});
  EXPECT_EQ(
      cells({logits, masks, {.ignore_index = 255}}),
      (std::vector<int64_t>{0, 1, 0, 0, 1, 0, 0, 1, 0}));
  const ConfusionMatrix without_first(
      logits,
      masks.clamp_max(2),
      {.ignore_index = 0});
  EXPECT_EQ(
      cells(without_first),
      (std::vector<int64_t>{0, 0, 0, 0, 1, 0, 0, 2, 0}));
  EXPECT_EQ(without_first.report().classes.size(), 2u);
}

TEST(ConfusionMatrix, HasTheGivenNumberOfClasses) {
  const torch::Tensor ones = torch::ones({4}, torch::kLong);
  EXPECT_EQ(ConfusionMatrix(ones, ones).counts().size(0), 2);
  EXPECT_EQ(
      ConfusionMatrix(ones, ones, {.num_classes = 5}).counts().size(0),
      5);
  const ConfusionMatrix named(ones, ones, {.classes = {"a", "b", "c"}});
  EXPECT_EQ(named.counts().size(0), 3);
  const torch::Tensor none = torch::empty({0}, torch::kLong);
  EXPECT_EQ(
      cells({none, none, {.classes = {"a", "b"}}}),
      (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(
      cells({torch::empty({0, 2}), none}),
      (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(ConfusionMatrix, PlotsAnSvgWithTheNamesOfTheClasses) {
  const TempFolder temp;
  const torch::Tensor ones = torch::ones({4}, torch::kLong);
  const ConfusionMatrix matrix(ones, ones, {.classes = {"cat", "dog"}});
  matrix.plot(temp / "matrix.svg", /*normalize=*/true);
  const auto bytes = read_file(temp / "matrix.svg");
  const std::string svg(bytes.begin(), bytes.end());
  for (const char* text : {"dog", "1.00", "fraction of the actual class"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  expect_error<c10::ValueError>(
      [&] { matrix.plot(temp / "matrix.jpg"); },
      {"ConfusionMatrix::plot", ".svg"});
}

TEST(ConfusionMatrix, SkipsPredictionsOfIgnoredTargets) {
  const torch::Tensor targets = torch::tensor({-100, 1, -100, 0});
  torch::Tensor scores =
      torch::tensor({{1., 0.}, {0., 1.}, {0., 1.}, {1., 0.}});
  scores[0][1] = scores[2][0] = NAN;
  EXPECT_TRUE(torch::equal(
      ConfusionMatrix(scores, targets).counts(),
      torch::eye(2, torch::kLong)));
  scores[3][0] = NAN;
  expect_error<c10::ValueError>(
      [&] { ConfusionMatrix(scores, targets); },
      {"preds[3]", "NaN"});
  // Errors name positions in the given tensors.
  expect_error<c10::ValueError>(
      [&] {
        ConfusionMatrix(
            torch::tensor({9, 1, 9, 7}),
            targets,
            {.num_classes = 3});
      },
      {"preds[3]", "is 7"});
}

TEST(ConfusionMatrix, RejectsInvalidClassPredictions) {
  const torch::Tensor targets = torch::tensor({0, 1, 1});
  const auto refuses = [&](const torch::Tensor& preds,
                           const torch::Tensor& of,
                           std::initializer_list<std::string_view> words,
                           ConfusionMatrix::Options options = {}) {
    expect_error<c10::ValueError>(
        [&] { ConfusionMatrix(preds, of, options); },
        words);
  };
  refuses(torch::rand({3}), targets, {"[3] Float", "preds > 0.5"});
  refuses(torch::rand({3, 1}), targets, {"[3, 1] Float", "two or more"});
  refuses(torch::rand({2, 4}), targets, {"[2, 4]", "[3] Long"});
  refuses(torch::rand({3, 2}), torch::rand({3}), {"targets are [3] Float"});
  refuses(torch::Tensor(), targets, {"preds are undefined"});
  refuses(torch::full({3, 2}, NAN), targets, {"preds[0]", "NaN"});
  refuses(torch::rand({3, 2}), targets + 1, {"targets[1]", "is 2", "0 to 1"});
  refuses(targets - 1, targets, {"preds[0]", "is -1"});
  refuses(
      torch::rand({3, 2}),
      targets,
      {"num_classes is 3", "2 classes"},
      {.num_classes = 3});
  refuses(
      torch::rand({3, 2}),
      targets,
      {"3 class names for 2"},
      {.classes = {"a", "b", "c"}});
  const torch::Tensor none = torch::empty({0}, torch::kLong);
  refuses(none, none, {"no sample"});
}

}  // namespace
}  // namespace tern::confusion_matrix_test
