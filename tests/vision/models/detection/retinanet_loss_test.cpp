#include "tern/vision/models/detection/retinanet_loss.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/amp/autocast.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/models/detection/fixture.h"

namespace tern::retinanet_loss_test {
namespace {

using testing_support::crc_of;
using testing_support::detection_fixture;
using testing_support::expect_products;
using testing_support::retinanet_anchors;
using testing_support::some;

constexpr int64_t kImages = 3, kClasses = 4;

// Returns the same objects as detection_fixture.py.
Tensors objects(int64_t index, torch::ScalarType type = torch::kFloat) {
  torch::Tensor boxes = (some({kImages, 5, 4}, index + 100) + 1) * 40;
  boxes.slice(2, 2) = boxes.slice(2, 0, 2) + boxes.slice(2, 2).round() + 1;
  if (index % 2 != 0) boxes = boxes.round();
  boxes.select(1, 3).copy_(boxes.select(1, 1));
  if (index % 5 == 0) boxes.select(1, 4) += 200;
  torch::Tensor labels =
      ((some({kImages, 5}, index + 200) + 1.3) * 2).floor().to(torch::kLong) -
      1;
  labels = labels.clamp_max(kClasses - 1);
  if (index % 4 < kImages) labels[index % 4] = -1;
  return {boxes.to(type), labels};
}

Tensors outputs(int64_t index, torch::ScalarType type) {
  const torch::Tensor anchors =
      retinanet_anchors(64 + 8 * (index % 5), 96 - 5 * (index % 7));
  const int64_t count = anchors.size(0);
  return {
      (4 * some({kImages, count, kClasses}, index + 300) - 2)
          .to(type)
          .requires_grad_(),
      some({kImages, count, 4}, index + 400).to(type).requires_grad_(),
      anchors.expand({kImages, -1, -1}),
      torch::zeros({kImages, 2})};
}

RetinaNetLossOptions options(int64_t index) {
  return {.box_loss = index % 3 == 2 ? BoxLoss::giou : BoxLoss::l1};
}

const nlohmann::json& losses() {
  return detection_fixture()["losses"];
}

TEST(RetinaNetLossTest, MatchesAnchorsLikeTorchvision) {
  for (int64_t i = 0; i < std::ssize(losses()); ++i) {
    const Tensors targets = objects(i);
    const torch::Tensor matched =
        match_anchors(targets[0], targets[1], outputs(i, torch::kFloat)[2]);
    std::string bytes;
    for (int64_t j = 0; j < matched.numel(); ++j) {
      bytes += static_cast<char>(matched.const_data_ptr<int64_t>()[j]);
    }
    EXPECT_EQ(crc_of(bytes), losses()[i]["matched"].get<uint32_t>()) << i;
  }
}

TEST(RetinaNetLossTest, EqualsTorchvisionForRandomInputs) {
  for (int64_t i = 0; i < std::ssize(losses()); ++i) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      const Tensors parts =
          retinanet_losses(outputs(i, type), objects(i, type), options(i));
      const bool is_float = type == torch::kFloat;
      for (size_t part = 0; part < 2; ++part) {
        EXPECT_EQ(parts[part].scalar_type(), type);
        const auto expected =
            losses()[i][is_float ? "float" : "double"][part].get<double>();
        EXPECT_NEAR(
            parts[part].item<double>(),
            expected,
            (is_float ? 2e-6 : 1e-8) * expected)
            << i << " " << part;
      }
    }
  }
}

TEST(RetinaNetLossTest, HasTorchvisionsGradients) {
  for (int64_t i = 0; i < std::ssize(losses()); ++i) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, std::to_string(i));
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      const Tensors y = outputs(i, type);
      retinanet_loss(options(i))(y, objects(i, type)).backward();
      expect_products(
          {y[0].grad(), y[1].grad()},
          losses()[i]["gradients"],
          type == torch::kFloat ? 2e-6 : 1e-7);
    }
  }
}

TEST(RetinaNetLossTest, IsTheMeanOfThePerImageLosses) {
  for (const int64_t i : {0, 2, 5}) {
    const Tensors y = outputs(i, torch::kDouble);
    const Tensors targets = objects(i, torch::kDouble);
    const Loss loss = retinanet_loss(options(i));
    const torch::Tensor each = loss.per_sample(y, targets);
    ASSERT_EQ(each.sizes().vec(), std::vector<int64_t>{kImages});
    EXPECT_TRUE(torch::allclose(each.mean(), loss(y, targets), 1e-12));
    for (int64_t row = 0; row < kImages; ++row) {
      const auto only = [&](const Tensors& all) {
        Tensors one;
        for (const torch::Tensor& t : all)
          one.push_back(t.slice(0, row, row + 1));
        return one;
      };
      EXPECT_NEAR(
          loss(only(y), only(targets)).item<double>(),
          each[row].item<double>(),
          1e-9);
    }
  }
}

TEST(RetinaNetLossTest, IsZeroWithZeroWeightForAnEmptyBatch) {
  Tensors y = outputs(0, torch::kFloat), targets = objects(0);
  for (torch::Tensor& t : y) t = t.slice(0, 0, 0);
  for (torch::Tensor& t : targets) t = t.slice(0, 0, 0);
  for (const BoxLoss kind : {BoxLoss::l1, BoxLoss::giou}) {
    const Loss loss = retinanet_loss({.box_loss = kind});
    const torch::Tensor value = loss(y, targets);
    EXPECT_EQ(value.item<float>(), 0);
    value.backward();
    EXPECT_EQ(loss.count(y, targets), 0);
    for (const torch::Tensor& part : retinanet_losses(y, targets)) {
      EXPECT_EQ(part.item<float>(), 0);
    }
  }
}

// Computed element by element from the paper's formula.
TEST(RetinaNetLossTest, ClassificationLossIsTheFocalLoss) {
  for (const auto& [alpha, gamma] :
       {std::pair(0.25, 2.0), std::pair(1.0, 0.5), std::pair(0.6, 0.0)}) {
    const torch::Tensor box = torch::tensor({{{0., 0., 10., 10.}}});
    const torch::Tensor logits =
        torch::tensor({{{1.5, -0.5, 40., -40.}}}, torch::kDouble)
            .requires_grad_();
    const Tensors parts = retinanet_losses(
        {logits, torch::zeros({1, 1, 4}, torch::kDouble), box},
        {box, torch::tensor({{1}})},
        {.alpha = alpha, .gamma = gamma});
    double expected = 0;
    for (int i = 0; i < 4; ++i) {
      const double x = logits[0][0][i].item<double>() * (i == 1 ? -1 : 1);
      const double p = 1 / (1 + std::exp(-x));
      expected += (i == 1 ? alpha : 1 - alpha) * std::pow(p, gamma) *
                  std::log1p(std::exp(x));
    }
    EXPECT_NEAR(parts[0].item<double>(), expected, 1e-9 * expected);
    EXPECT_EQ(parts[1].item<double>(), 0);

    // Also compares the gradient with finite differences.
    parts[0].backward();
    for (int i = 0; i < 4; ++i) {
      const auto moved = [&](double by) {
        torch::Tensor other = logits.detach().clone();
        other[0][0][i] += by;
        return retinanet_losses(
                   {other, torch::zeros({1, 1, 4}, torch::kDouble), box},
                   {box, torch::tensor({{1}})},
                   {.alpha = alpha, .gamma = gamma})[0]
            .item<double>();
      };
      EXPECT_NEAR(
          logits.grad()[0][0][i].item<double>(),
          (moved(1e-5) - moved(-1e-5)) / 2e-5,
          1e-8)
          << i;
    }
  }
}

TEST(RetinaNetLossTest, BoxLossIsZeroForImagesWithoutObjects) {
  for (const int64_t rows : {0, 3}) {
    const Tensors y = outputs(4, torch::kFloat);
    const Tensors parts = retinanet_losses(
        y,
        {torch::zeros({kImages, rows, 4}),
         torch::full({kImages, rows}, -1, torch::kLong)});
    (parts[0] + parts[1]).backward();
    EXPECT_GT(parts[0].item<float>(), 0);
    EXPECT_EQ(parts[1].item<float>(), 0);
    EXPECT_TRUE((y[0].grad() > 0).all().item<bool>());
    EXPECT_EQ(y[1].grad().abs().max().item<float>(), 0);
  }
}

TEST(RetinaNetLossTest, IgnoresPaddingAnywhereWithAnyValues) {
  const Tensors y = outputs(1, torch::kFloat), targets = objects(1);
  Tensors padded = {
      torch::full({kImages, 8, 4}, std::numeric_limits<double>::quiet_NaN()),
      torch::full({kImages, 8}, -1, torch::kLong)};
  const torch::Tensor rows = torch::tensor({1, 2, 4, 5, 7});
  padded[0].index_copy_(1, rows, targets[0]);
  padded[1].index_copy_(1, rows, targets[1]);
  padded.push_back(torch::ones({1}));  // not used
  const Loss loss = retinanet_loss();
  EXPECT_EQ(loss(y, padded).item<float>(), loss(y, targets).item<float>());
  loss(y, padded).backward();
  EXPECT_TRUE(y[1].grad().isfinite().all().item<bool>());
}

TEST(RetinaNetLossTest, IgnoresBoxesWithoutArea) {
  Tensors targets = objects(1);
  Tensors without = {targets[0].clone(), targets[1].clone()};
  targets[0].select(1, 2).select(1, 2).copy_(
      targets[0].select(1, 2).select(1, 0));
  without[1].select(1, 2).fill_(-1);
  const Tensors y = outputs(1, torch::kFloat);
  const Loss loss = retinanet_loss();
  EXPECT_EQ(loss(y, targets).item<float>(), loss(y, without).item<float>());
}

TEST(RetinaNetLossTest, IgnoresAnObjectThatOverlapsNoAnchor) {
  Tensors y = outputs(1, torch::kFloat);
  y[2] = y[2] + 1000;
  const Tensors targets = objects(1);
  const torch::Tensor matched = match_anchors(targets[0], targets[1], y[2]);
  EXPECT_TRUE((matched == -1).all().item<bool>());
  const Tensors losses = retinanet_losses(y, targets);
  EXPECT_EQ(losses[1].item<float>(), 0);
}

TEST(RetinaNetLossTest, ComputesLargeBatchesInPartsWithTheSameResult) {
  // More elements than the loss computes in one chunk.
  const Tensors targets = objects(3), y = outputs(3, torch::kFloat);
  const int64_t classes = 1500;
  const torch::Tensor logits =
      torch::cat(
          {y[0].detach(),
           torch::full({kImages, y[0].size(1), classes - kClasses}, -9.f)},
          2)
          .requires_grad_();
  const auto loss = [&](int64_t begin, int64_t end) {
    Tensors part = {logits, y[1], y[2]}, objects_of = targets;
    for (Tensors* all : {&part, &objects_of}) {
      for (torch::Tensor& t : *all) t = t.slice(0, begin, end);
    }
    return retinanet_losses(part, objects_of)[0];
  };
  const torch::Tensor together = loss(0, kImages);
  together.backward();
  const torch::Tensor gradient = logits.grad().clone();
  logits.mutable_grad().zero_();
  double sum = 0;
  for (int64_t i = 0; i < kImages; ++i) {
    const torch::Tensor alone = loss(i, i + 1) / kImages;
    alone.backward();
    sum += alone.item<double>();
  }
  EXPECT_NEAR(together.item<double>(), sum, 1e-6 * sum);
  EXPECT_TRUE(test::all_close(gradient, logits.grad(), {1e-5, 1e-12}));
}

TEST(RetinaNetLossTest, IsComputedInFloatFor16BitOutputs) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    Tensors y = outputs(2, type), floats = y;
    for (size_t i = 0; i < 2; ++i) {
      floats[i] = y[i].detach().to(torch::kFloat).requires_grad_();
    }
    const Loss loss = retinanet_loss();
    const torch::Tensor value = loss(y, objects(2));
    EXPECT_EQ(value.scalar_type(), torch::kFloat);
    EXPECT_EQ(value.item<float>(), loss(floats, objects(2)).item<float>());
    const AutocastGuard autocast(torch::kCPU);
    EXPECT_EQ(value.item<float>(), loss(y, objects(2)).item<float>());
    value.backward();
    loss(floats, objects(2)).backward();
    EXPECT_EQ(y[0].grad().scalar_type(), type);
    EXPECT_TRUE(test::bit_equal(y[0].grad(), floats[0].grad().to(type)));
  }
}

TEST(RetinaNetLossTest, AppliesTheWeightOfTheBoxLoss) {
  const Tensors y = outputs(1, torch::kFloat);
  const Tensors parts = retinanet_losses(y, objects(1));
  EXPECT_FLOAT_EQ(
      retinanet_loss({.box_weight = 3})(y, objects(1)).item<float>(),
      (parts[0] + 3 * parts[1]).item<float>());
}

TEST(RetinaNetLossTest, NeverSynchronizesWithTheDevice) {
  const Tensors y = outputs(1, torch::kFloat), targets = objects(1);
  const Loss loss = retinanet_loss({.box_loss = BoxLoss::giou});
  const test::HostReads reads;
  loss(y, targets).backward();
  EXPECT_EQ(reads.count(), 0);
}

TEST(RetinaNetLossTest, RejectsInvalidArguments) {
  const Tensors y = outputs(1, torch::kFloat), targets = objects(1);
  const Loss loss = retinanet_loss();
  expect_error<c10::ValueError>(
      [&] {
        loss({y[0], y[1]}, targets);
      },
      {"[retinanet_loss] outputs are [3, ", "anchors [N, A, 4]"});
  expect_error<c10::ValueError>(
      [&] { loss(y, {targets[0]}); },
      {"[retinanet_loss] targets are [3, 5, 4] Float for 3 images",
       "labels [N, K] of kLong"});
  expect_error<c10::ValueError>(
      [&] {
        loss(y, {targets[0], targets[1] + kClasses});
      },
      {"[retinanet_loss] a label is 7, but the network has 4 classes",
       "from 0 to 3"});
  expect_error<c10::ValueError>(
      [&] {
        loss(y, {targets[0], torch::full_like(targets[1], -2)});
      },
      {"a label is -2", "-1 for no object"});
  expect_error<c10::ValueError>(
      [] { retinanet_loss({.alpha = 2}); },
      {"[retinanet_loss] alpha is 2"});
  expect_error<c10::ValueError>(
      [] { retinanet_loss({.fg_iou = 0.3}); },
      {"bg_iou is 0.4 and fg_iou is 0.3"});
  expect_error<c10::ValueError>(
      [&] { match_anchors(targets[0], targets[0], y[2]); },
      {"[match_anchors]"});
}

}  // namespace
}  // namespace tern::retinanet_loss_test
