#include "tern/kernels/boxes/move_boxes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"

namespace tern::move_boxes_test {
namespace {

torch::Tensor numbers(std::initializer_list<float> values) {
  return torch::tensor(c10::ArrayRef<float>(values));
}

struct Moved {
  torch::Tensor boxes, labels, areas;
};

/// The result for one box of class 3 whose outline has half its area; the
/// output image is 100 x 200.
Moved moved(
    std::initializer_list<float> box,
    const Matrix3& matrix,
    double min_share = 0.1) {
  Moved result{
      numbers(box).view({1, 1, 4}),
      torch::full({1, 1}, 3, torch::kLong),
      torch::zeros({1, 1})};
  const float* b = result.boxes.const_data_ptr<float>();
  result.areas.fill_((b[2] - b[0]) * (b[3] - b[1]) / 2);
  move_boxes_(
      result.boxes,
      result.labels,
      result.areas,
      {matrix},
      100,
      200,
      min_share);
  return result;
}

void expect_box(const Moved& moved, std::initializer_list<float> box) {
  EXPECT_EQ(moved.labels.item<int64_t>(), 3);
  EXPECT_TRUE(torch::allclose(moved.boxes.view({4}), numbers(box), 1e-6, 1e-4))
      << moved.boxes;
}

TEST(Matrix3, TimesItsInverseIsTheIdentity) {
  const Matrix3 matrix = {{1.2, 0.3, 5, -0.2, 0.9, 7, 1e-3, -2e-3, 1.1}};
  const Matrix3 product = matrix.inverse() * matrix;
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(product.values[i], i % 4 == 0 ? 1 : 0, 1e-12);
  }
  expect_error<c10::ValueError>(
      [] { Matrix3::scaling(0, 1).inverse(); },
      {"determinant 0", "invertible"});
}

TEST(MoveBoxes, AnIdentityKeepsBoxesBitForBit) {
  const Moved same = moved({1.1f, 2.3f, 99.7f, 50.9f}, {});
  EXPECT_TRUE(
      torch::equal(same.boxes.view({4}), numbers({1.1f, 2.3f, 99.7f, 50.9f})));
}

TEST(MoveBoxes, ReturnsTheBoxAroundTheMovedCorners) {
  // Flipped at x = 100, then scaled to twice the height.
  expect_box(
      moved(
          {10, 20, 30, 40},
          Matrix3::scaling(1, 2) * Matrix3::translation(200, 0) *
              Matrix3::scaling(-1, 1)),
      {170, 40, 190, 80});
  // A square turned by 45 degrees is sqrt(2) as wide.
  const double eighth = 0.78539816339744831;
  const Moved turned = moved(
      {-10, -10, 10, 10},
      Matrix3::translation(50, 50) * Matrix3::rotation(eighth));
  expect_box(turned, {35.857864f, 35.857864f, 64.142136f, 64.142136f});
  // The outline is turned too and keeps its area.
  EXPECT_NEAR(turned.areas.item<float>(), 200, 1e-3);
}

TEST(MoveBoxes, ClipsToTheImageAndScalesTheAreaInProportion) {
  const Moved half = moved({0, 10, 40, 30}, Matrix3::translation(-20, 0));
  expect_box(half, {0, 10, 20, 30});
  EXPECT_FLOAT_EQ(half.areas.item<float>(), 200);
  expect_box(
      moved({0, 0, 1, 1}, Matrix3::scaling(1000, 1000), /*min_share=*/0),
      {0, 0, 200, 100});
}

TEST(MoveBoxes, ReturnsTheBoxAroundTheVisiblePartOfATurnedBox) {
  const double eighth = 0.78539816339744831;
  // A square turned by 45 degrees, of which the lower half, a triangle, is
  // visible.
  const Matrix3 turned =
      Matrix3::translation(50, 0) * Matrix3::rotation(eighth);
  const Moved half = moved({-10, -10, 10, 10}, turned);
  expect_box(half, {35.857864f, 0, 64.142136f, 14.142136f});
  EXPECT_NEAR(half.areas.item<float>(), 100, 1e-3);
  // The bounding box reaches into the image, but no part of the turned square
  // is visible.
  const Moved beyond = moved(
      {-10, -10, 10, 10},
      Matrix3::translation(-8, -8) * Matrix3::rotation(eighth),
      /*min_share=*/0);
  EXPECT_EQ(beyond.labels.item<int64_t>(), -1);
}

TEST(MoveBoxes, DropsABoxOfWhichTooLittleIsVisible) {
  const auto label = [](double left, double min_share) {
    const Moved box =
        moved({0, 0, 100, 50}, Matrix3::translation(left, 0), min_share);
    const auto label = box.labels.item<int64_t>();
    if (label < 0) {
      EXPECT_EQ(box.boxes.abs().sum().item<float>(), 0);
      EXPECT_EQ(box.areas.item<float>(), 0);
    }
    return label;
  };
  EXPECT_EQ(label(-79, 0.2), 3);
  EXPECT_EQ(label(-81, 0.2), -1);
  EXPECT_EQ(label(-99, 0), 3);
  EXPECT_EQ(label(-100, 0), -1);
  EXPECT_EQ(label(200, 0), -1);
}

TEST(MoveBoxes, DropsABoxThatReachesBehindTheHorizon) {
  // w = 1 - x / 50.
  const Matrix3 steep = {{1, 0, 0, 0, 1, 0, -0.02, 0, 1}};
  EXPECT_EQ(moved({0, 0, 20, 20}, steep).labels.item<int64_t>(), 3);
  EXPECT_EQ(moved({0, 0, 60, 20}, steep, 0).labels.item<int64_t>(), -1);
}

TEST(MoveBoxes, LeavesPaddingRowsUntouched) {
  torch::Tensor boxes = torch::full({2, 3, 4}, 7.f);
  torch::Tensor labels = torch::full({2, 3}, -1, torch::kLong);
  move_boxes_(boxes, labels, {}, {Matrix3::scaling(2, 2), {}}, 10, 10, 0);
  EXPECT_TRUE(torch::equal(boxes, torch::full({2, 3, 4}, 7.f)));
}

TEST(MoveBoxes, MovesEachImageByItsOwnMatrix) {
  torch::Tensor boxes = numbers({1, 1, 2, 2}).expand({3, 2, 4}).contiguous();
  torch::Tensor labels = torch::zeros({3, 2}, torch::kLong);
  move_boxes_(
      boxes,
      labels,
      {},
      {{}, Matrix3::scaling(2, 3), Matrix3::translation(5, 0)},
      10,
      10,
      0);
  EXPECT_TRUE(torch::equal(
      boxes.select(1, 1),
      numbers({1, 1, 2, 2, 2, 3, 4, 6, 6, 1, 7, 2}).view({3, 4})));
}

TEST(MovePoints, MovesPointsAndReportsWhichAreInsideTheImage) {
  torch::Tensor points =
      numbers({10, 20, 10, 20, 90, 20, 5, 5}).view({1, 4, 2});
  torch::Tensor visible = torch::tensor({true, false, true, true}).view({1, 4});
  move_points_(points, visible, {Matrix3::scaling(3, 2)}, 50, 200);
  EXPECT_TRUE(torch::equal(
      points.view({-1}),
      numbers({30, 40, 0, 0, 270, 40, 15, 10})));
  EXPECT_TRUE(torch::equal(
      visible.view({-1}),
      torch::tensor({true, false, false, true})));
}

TEST(MoveBoxes, RejectsOtherShapesAndDtypes) {
  const auto refused = [](const torch::Tensor& boxes,
                          const torch::Tensor& labels,
                          size_t matrices,
                          const char* words) {
    expect_error<c10::ValueError>(
        [&] {
          move_boxes_(
              boxes,
              labels,
              {},
              std::vector<Matrix3>(matrices),
              10,
              10,
              0);
        },
        {"[move_boxes_]", words});
  };
  const auto longs = [](at::IntArrayRef shape) {
    return torch::zeros(shape, torch::kLong);
  };
  refused(torch::zeros({2, 3}), longs({2, 3}), 2, "[N, K, 4] kFloat");
  refused(torch::zeros({2, 3, 4}), longs({2, 2}), 2, "[N, K] kLong");
  refused(torch::zeros({2, 3, 4}), torch::zeros({2, 3}), 2, "[N, K] kLong");
  refused(torch::zeros({2, 3, 4}), longs({2, 3}), 1, "1 matrices");
}

}  // namespace
}  // namespace tern::move_boxes_test
