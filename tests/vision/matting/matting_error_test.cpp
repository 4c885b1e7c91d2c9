#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/matting/fixture.h"
#include "tern/vision/matting/matting_loss.h"

namespace tern::matting_error_test {
namespace {

using namespace testing_support;  // NOLINT

torch::Tensor truth() {
  return torch::maximum(blob(40, 48, 18, 16, 9), blob(40, 48, 30, 40, 4));
}

torch::Tensor seen() {
  return torch::maximum(blob(40, 48, 17, 18, 8), blob(40, 48, 10, 40, 5));
}

TEST(MattingError, EqualsPython) {
  const auto expected = matting_fixture()["errors"];
  for (Metric& metric : matting_metrics()) {
    metric.update({seen()}, {truth()});
    const auto value = expected[metric.name()].get<double>();
    EXPECT_GT(value, 0.001) << metric.name();
    EXPECT_NEAR(metric.compute().item<double>(), value, 1e-5 * value)
        << metric.name();
    EXPECT_FALSE(metric.higher_is_better());
  }
}

TEST(MattingError, IsZeroForPerfectPredictions) {
  for (Metric& metric : matting_metrics()) {
    metric.update({truth()}, {truth()});
    EXPECT_EQ(metric.compute().item<double>(), 0) << metric.name();
  }
}

TEST(MattingError, SumsAreInThousandsOfPixels) {
  const torch::Tensor none = torch::zeros({2, 1, 50, 40});
  torch::Tensor all = torch::ones({2, 1, 50, 40});
  all[1].fill_(0.5);
  EXPECT_TRUE(torch::equal(
      alpha_sad(none, all),
      torch::tensor({2.0, 1.0}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(
      alpha_mse(none, all),
      torch::tensor({1.0, 0.25}, torch::kDouble)));
}

TEST(MattingError, IsTheMeanOverImagesForAnyBatchSize) {
  Metric sad = matting_metrics()[0];
  sad.update({torch::cat({seen(), truth()})}, {torch::cat({truth(), truth()})});
  sad.update({truth()}, {truth()});
  EXPECT_NEAR(
      sad.compute().item<double>(),
      alpha_sad(seen(), truth()).item<double>() / 3,
      1e-9);
}

// Small differences count if a part is cut off from the largest region.
TEST(MattingError, ConnectivityPenalizesDisconnectedParts) {
  torch::Tensor whole = torch::zeros({1, 1, 40, 48});
  const auto part =
      [](torch::Tensor& x, int64_t top, int64_t left, int64_t side) {
        return x.slice(2, top, top + side).slice(3, left, left + side);
      };
  part(whole, 5, 2, 30).fill_(1);
  part(whole, 20, 32, 2).fill_(1);
  part(whole, 15, 34, 10).fill_(1);
  torch::Tensor faint = whole * 0.92;
  EXPECT_EQ(alpha_connectivity_error(faint, whole).item<double>(), 0);
  // Without the bridge of 4 pixels, the limb of 100 pixels is disconnected.
  part(faint, 20, 32, 2).fill_(0);
  EXPECT_NEAR(
      alpha_connectivity_error(faint, whole).item<double>(),
      (4 + 100 * 0.08) / 1000,
      1e-6);
}

TEST(MattingError, AcceptsAlphasWithoutForeground) {
  const torch::Tensor none = torch::zeros({1, 1, 8, 9});
  for (Metric& metric : matting_metrics()) {
    metric.update({none}, {none});
    metric.update({none}, {none + 1});
    EXPECT_TRUE(std::isfinite(metric.compute().item<double>()))
        << metric.name();
  }
}

TEST(MattingError, RejectsAlphasOfDifferentShapes) {
  expect_error<c10::ValueError>(
      [] {
        alpha_sad(torch::zeros({1, 1, 4, 4}), torch::zeros({1, 1, 4, 5}));
      },
      {"[alpha_sad]", "[1, 1, 4, 5]"});
  expect_error<c10::ValueError>(
      [] {
        const torch::Tensor bytes = torch::zeros({1, 1, 4, 4}, torch::kByte);
        alpha_connectivity_error(bytes, bytes);
      },
      {"[alpha_connectivity_error]", "floating"});
}

}  // namespace
}  // namespace tern::matting_error_test
