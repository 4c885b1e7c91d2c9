#include "tern/kernels/boxes/box_ops.h"

#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/numbers.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::box_ops_test {
namespace {

using testing_support::some;
using torch::indexing::None;
using torch::indexing::Slice;

// The fixture file, or the live output of box_ops_fixture.py.
const nlohmann::json& sets() {
  static const char* live = std::getenv("TERN_BOX_OPS");
  static const auto fixture = nlohmann::json::parse(std::ifstream(
      live ? live : in_tests_folder("kernels/box_ops_fixture.json")));
  return fixture["sets"];
}

// The same boxes as in box_ops_fixture.py.
torch::Tensor boxes_of(int64_t count, int64_t index) {
  const torch::Tensor middles = (some({count, 2}, 2 * index) + 1) * 50;
  torch::Tensor sizes = (some({count, 2}, 2 * index + 1) + 1) * 30;
  sizes.index_put_({Slice(None, None, 7), 0}, 0);
  sizes.index_put_({Slice(3, None, 11)}, 0);
  torch::Tensor boxes =
      torch::cat({middles - sizes / 2, middles + sizes / 2}, 1);
  torch::Tensor twice = boxes.slice(0, 2, count, 5);
  twice.copy_(boxes.slice(0, 1, count, 5).slice(0, 0, twice.size(0)).clone());
  if (index % 3 == 0) boxes = boxes.round();
  return index % 4 == 3 ? boxes : boxes.to(torch::kFloat);
}

struct BoxSet {
  torch::Tensor boxes, scores, classes;
  double threshold;

  explicit BoxSet(int64_t index) {
    const int64_t count = index % 100 == 99 ? 400 : index % 40;
    boxes = boxes_of(count, index);
    scores = some({count}, index + 5000);
    if (index % 2 != 0) scores = (scores * 5).round() / 5;
    scores = scores.to(boxes.scalar_type());
    classes = ((some({count}, index + 9000) + 1) * 2).floor().to(torch::kLong);
    threshold = std::array{0.5, 0.3, 0.7, 0.0}[index % 5 % 4];
  }
};

std::vector<int64_t> list(const torch::Tensor& indices) {
  return {
      indices.const_data_ptr<int64_t>(),
      indices.const_data_ptr<int64_t>() + indices.numel()};
}

TEST(BoxOpsTest, NmsKeepsWhatTorchvisionKeepsOf1000Sets) {
  for (size_t i = 0; i < sets().size(); ++i) {
    const BoxSet set(static_cast<int64_t>(i));
    const torch::Tensor kept = nms(set.boxes, set.scores, set.threshold);
    EXPECT_EQ(list(kept), sets()[i]["nms"].get<std::vector<int64_t>>()) << i;
    const torch::Tensor of_classes = batched_nms(
        set.boxes.clamp_min(0),
        set.scores,
        set.classes,
        set.threshold);
    EXPECT_EQ(
        list(of_classes),
        sets()[i]["batched_nms"].get<std::vector<int64_t>>())
        << i;
  }
}

void expect_as_pythons(
    const torch::Tensor& result,
    const nlohmann::json& expected,
    double error) {
  const torch::Tensor all = result.to(torch::kDouble).flatten();
  ASSERT_EQ(all.numel(), expected[1].get<int64_t>());
  const torch::Tensor finite = all.masked_select(all.isfinite());
  ASSERT_EQ(finite.numel(), expected[0][0].get<int64_t>());
  const double size = 1 + finite.abs().sum().item<double>();
  EXPECT_NEAR(
      finite.sum().item<double>(),
      expected[0][1].get<double>(),
      error * size);
  EXPECT_NEAR(
      (finite * some({finite.numel()}, 17)).sum().item<double>(),
      expected[0][2].get<double>(),
      error * size);
}

TEST(BoxOpsTest, EqualTorchvisionsBoxOps) {
  for (int64_t i = 0; sets()[i].contains("box_iou"); ++i) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, std::to_string(i));
    const nlohmann::json& python = sets()[i];
    const torch::Tensor boxes = BoxSet(i).boxes;
    const int64_t count = boxes.size(0);
    const auto type = boxes.scalar_type();
    const torch::Tensor others = boxes_of(7, i + 20000).to(type);
    const torch::Tensor pairs = boxes_of(count, i + 30000).to(type);
    const torch::Tensor wide =
        pairs + torch::tensor({0, 0, 5, 9}, torch::dtype(type));
    const torch::Tensor codes = (some({count, 4}, i + 40000).to(type)) * 3;
    const BoxWeights weights =
        i % 2 != 0 ? BoxWeights{1, 1, 1, 1} : BoxWeights{10, 10, 5, 5};
    const double error = 1e-7;
    expect_as_pythons(box_area(boxes), python["box_area"], error);
    expect_as_pythons(box_iou(boxes, others), python["box_iou"], error);
    expect_as_pythons(
        generalized_box_iou(boxes, others),
        python["generalized_box_iou"],
        error);
    expect_as_pythons(
        generalized_box_iou_loss(boxes, pairs),
        python["generalized_box_iou_loss"],
        error);
    expect_as_pythons(
        clip_boxes_to_image(boxes, 60, 70),
        python["clip_boxes_to_image"],
        error);
    expect_as_pythons(
        encode_boxes(boxes, wide, weights),
        python["encode_boxes"],
        error);
    expect_as_pythons(
        decode_boxes(codes, wide, weights),
        python["decode_boxes"],
        error);
  }
}

TEST(BoxOpsTest, BatchesEqualTheirElements) {
  const torch::Tensor a = torch::stack({boxes_of(9, 0), boxes_of(9, 12)});
  const torch::Tensor b = torch::stack({boxes_of(5, 24), boxes_of(5, 36)});
  for (const auto op : {box_iou, generalized_box_iou}) {
    const torch::Tensor both = op(a, b);
    ASSERT_EQ(both.sizes(), (std::vector<int64_t>{2, 9, 5}));
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(bit_equal(both[i], op(a[i], b[i])));
      EXPECT_TRUE(bit_equal(op(a, b[0])[i], op(a[i], b[0])));
    }
  }
  const torch::Tensor sizes = torch::tensor({{60, 70}, {30, 90}});
  EXPECT_TRUE(bit_equal(
      clip_boxes_to_image(a, sizes),
      torch::stack(
          {clip_boxes_to_image(a[0], 60, 70),
           clip_boxes_to_image(a[1], 30, 90)})));
}

TEST(BoxOpsTest, DecodingUndoesEncoding) {
  const torch::Tensor boxes = boxes_of(50, 3).to(torch::kDouble) +
                              torch::tensor({0, 0, 3, 4}, torch::kDouble);
  const torch::Tensor from =
      boxes_of(50, 7) + torch::tensor({0, 0, 9, 8}, torch::kDouble);
  const BoxWeights weights = {10, 10, 5, 5};
  EXPECT_TRUE(all_close(
      decode_boxes(encode_boxes(boxes, from, weights), from, weights),
      boxes));
}

TEST(BoxOpsTest, ADecodedBoxGrowsAtMostBy1000Over16) {
  const torch::Tensor box = torch::tensor({{0., 0., 16., 32.}});
  const torch::Tensor grown =
      decode_boxes(torch::tensor({{0., 0., 50., 50.}}), box);
  EXPECT_NEAR((grown[0][2] - grown[0][0]).item<double>(), 1000, 1e-3);
  EXPECT_NEAR((grown[0][3] - grown[0][1]).item<double>(), 2000, 1e-3);
}

TEST(BoxOpsTest, HalfPrecisionBoxesAreComputedInFloat) {
  const BoxSet set(38);
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const torch::Tensor boxes = set.boxes.to(type);
    const torch::Tensor floats = boxes.to(torch::kFloat);
    const torch::Tensor scores = set.scores.to(type);
    EXPECT_TRUE(bit_equal(box_iou(boxes, boxes), box_iou(floats, floats)));
    EXPECT_EQ(
        list(nms(boxes, scores, 0.5)),
        list(nms(floats, scores.to(torch::kFloat), 0.5)));
    EXPECT_TRUE(bit_equal(
        decode_boxes(boxes / 64, floats),
        decode_boxes((boxes / 64).to(torch::kFloat), floats)));
  }
}

// Numerical derivative of `f` with respect to each element of x.
template <class F>
torch::Tensor slopes(const F& f, const torch::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const double step = 1e-6;
  torch::Tensor result = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    torch::Tensor more = x.clone(), less = x.clone();
    more.view(-1)[i] += step;
    less.view(-1)[i] -= step;
    result.view(-1)[i] = (f(more) - f(less)) / (2 * step);
  }
  return result;
}

template <class F>
void expect_gradients(const F& f, const torch::Tensor& x) {
  torch::Tensor learnt = x.clone().requires_grad_();
  f(learnt).backward();
  EXPECT_TRUE(all_close(learnt.grad(), slopes(f, x), {1e-5, 1e-7}));
}

TEST(BoxOpsTest, HaveGradients) {
  const torch::Tensor a = boxes_of(9, 3).slice(0, 4, 7) +
                          torch::tensor({0, 0, 3, 4}, torch::kDouble);
  const torch::Tensor b =
      a + 2 * some({3, 4}, 8) + torch::tensor({0, 0, 3, 4}, torch::kDouble);
  expect_gradients([&](const auto& x) { return box_iou(x, b).sum(); }, a);
  expect_gradients(
      [&](const auto& x) { return generalized_box_iou(x, b).sum(); },
      a);
  expect_gradients(
      [&](const auto& x) { return generalized_box_iou_loss(x, b).sum(); },
      a);
  expect_gradients([&](const auto& x) { return encode_boxes(x, b).sum(); }, a);
  expect_gradients(
      [&](const auto& x) { return decode_boxes(x, b).sum(); },
      0.3 * some({3, 4}, 9));
}

TEST(BoxOpsTest, TheLossOfBoxesWithoutAreaHasAFiniteGradient) {
  torch::Tensor boxes = torch::tensor({{5., 5., 5., 5.}}).requires_grad_();
  const torch::Tensor loss =
      generalized_box_iou_loss(boxes, torch::tensor({{5., 5., 5., 5.}}));
  loss.sum().backward();
  EXPECT_TRUE(loss.isfinite().all().item<bool>());
  EXPECT_TRUE(boxes.grad().isfinite().all().item<bool>());
}

TEST(BoxOpsTest, AnIouEqualToTheThresholdKeepsBothBoxes) {
  // 1 / 3 and the largest float below it.
  const torch::Tensor boxes =
      torch::tensor({{0., 0., 2., 1.}, {1., 0., 3., 1.}}, torch::kFloat);
  const torch::Tensor scores = torch::tensor({1., 2.});
  const double third = box_iou(boxes, boxes)[0][1].item<float>();
  const double below = std::nextafter(static_cast<float>(third), 0.f);
  EXPECT_EQ(list(nms(boxes, scores, third)), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(list(nms(boxes, scores, below)), (std::vector<int64_t>{1}));
  const double between = (third + below) / 2;  // not a float
  EXPECT_EQ(list(nms(boxes, scores, between)), (std::vector<int64_t>{1}));
}

TEST(BoxOpsTest, OfBoxesWithEqualScoresTheFirstIsKept) {
  const torch::Tensor boxes = torch::tensor({{0., 0., 2., 2.}}).repeat({70, 1});
  EXPECT_EQ(
      list(nms(boxes, torch::ones({70}), 0.5)),
      (std::vector<int64_t>{0}));
}

TEST(BoxOpsTest, NoBoxesGiveNoBoxes) {
  const torch::Tensor none = torch::empty({0, 4});
  EXPECT_EQ(nms(none, torch::empty({0}), 0.5).numel(), 0);
  EXPECT_EQ(
      batched_nms(none, torch::empty({0}), torch::empty({0}, torch::kLong), 0.5)
          .numel(),
      0);
  EXPECT_EQ(
      nms_mask(torch::empty({2, 0, 4}), torch::empty({2, 0}, torch::kLong), 0.5)
          .sizes(),
      (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(
      box_iou(none, torch::ones({3, 4})).sizes(),
      (std::vector<int64_t>{0, 3}));
}

TEST(BoxOpsTest, AMaskOfABatchKeepsNoPadding) {
  const BoxSet a(99), b(199);
  const auto by_score = [](const BoxSet& set) {
    return std::get<1>(set.scores.sort(true, 0, true));
  };
  torch::Tensor boxes = torch::stack(
      {a.boxes.index_select(0, by_score(a)),
       b.boxes.to(a.boxes.scalar_type()).index_select(0, by_score(b))});
  torch::Tensor classes = torch::stack(
      {a.classes.index_select(0, by_score(a)),
       b.classes.index_select(0, by_score(b))});
  const torch::Tensor all = nms_mask(boxes, classes, 0.5);
  for (int64_t i = 0; i < 2; ++i) {
    const torch::Tensor alone =
        nms_mask(boxes.slice(0, i, i + 1), classes.slice(0, i, i + 1), 0.5);
    EXPECT_TRUE(alone[0].equal(all[i])) << i;
  }
  // Padding suppresses no box either.
  torch::Tensor padded = classes.clone();
  padded.slice(1, 0, 200).fill_(-1);
  const torch::Tensor rest = nms_mask(boxes, padded, 0.5);
  EXPECT_FALSE(rest.slice(1, 0, 200).any().item<bool>());
  EXPECT_TRUE(rest.slice(1, 200).equal(
      nms_mask(boxes.slice(1, 200), classes.slice(1, 200), 0.5)));
}

TEST(BoxOpsTest, ABoxWithNaNSuppressesNoBox) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const torch::Tensor boxes =
      torch::tensor({{0., 0., nan, 2.}, {0., 0., 2., 2.}, {0., 0., 2., 2.}});
  EXPECT_EQ(
      list(nms(boxes, torch::tensor({3., 2., 1.}), 0.5)),
      (std::vector<int64_t>{0, 1}));
}

TEST(BoxOpsTest, ReportInvalidArguments) {
  const torch::Tensor boxes = torch::ones({3, 4}), scores = torch::ones({3});
  expect_error<c10::ValueError>(
      [&] {
        box_area(torch::ones({3, 5}));
      },
      {"[box_area] boxes is [3, 5] kFloat on cpu; expected [..., 4]"});
  expect_error<c10::ValueError>(
      [&] { box_iou(boxes, boxes.to(torch::kLong)); },
      {"[box_iou] boxes2 is [3, 4] kLong", ".to(torch::kFloat)"});
  expect_error<c10::ValueError>(
      [&] {
        generalized_box_iou(torch::ones({2, 3, 4}), torch::ones({5, 3, 4}));
      },
      {"[generalized_box_iou]", "[..., N, 4] and [..., M, 4]"});
  expect_error<c10::ValueError>(
      [&] {
        encode_boxes(boxes, torch::ones({2, 4}));
      },
      {"[encode_boxes]", "the same number of boxes"});
  expect_error<c10::ValueError>(
      [&] { nms(boxes, torch::ones({2}), 0.5); },
      {"[nms] boxes is [3, 4]", "scores is [2]"});
  expect_error<c10::ValueError>(
      [&] { nms(boxes, scores, 1.5); },
      {"[nms] iou_threshold is 1.5; expected a number from 0 to 1."});
  expect_error<c10::ValueError>(
      [&] { batched_nms(boxes, scores, scores, 0.5); },
      {"[batched_nms]", "classes is [3] kFloat"});
  expect_error<c10::ValueError>(
      [&] { clip_boxes_to_image(boxes, scores); },
      {"[clip_boxes_to_image]", "height and width of each image"});
  expect_error<c10::ValueError>(
      [&] { nms_mask(boxes, scores, 0.5); },
      {"[nms_mask]", "[N, K] kLong"});
}

}  // namespace
}  // namespace tern::test::box_ops_test
