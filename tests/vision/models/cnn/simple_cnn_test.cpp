#include "tern/vision/models/cnn/simple_cnn.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/expect_error.h"

namespace tern::simple_cnn_test {
namespace {

TEST(SimpleCnn, ReturnsOneLogitPerClass) {
  auto model = simple_cnn({3, 16, 16, 2});
  EXPECT_EQ(
      model->forward(torch::rand({5, 3, 28, 28})).sizes(),
      (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(model->parameters().size(), 6);
}

TEST(SimpleCnn, ConsistsOfConvolutionsReluAndAveragePooling) {
  auto model = simple_cnn({3, 4, 2});
  const auto p = model->parameters();
  const auto x = torch::rand({2, 3, 9, 9});
  const auto hidden = torch::relu(torch::conv2d(x, p[0], p[1], 2, 1));
  const auto expected = torch::conv2d(hidden, p[2], p[3], 2, 1).mean({2, 3});
  EXPECT_TRUE(torch::allclose(model->forward(x), expected, 1e-4, 1e-6));
}

TEST(SimpleCnn, SupportsFastaisLastReluAndBatchNorm) {
  torch::manual_seed(1);
  auto model = simple_cnn({3, 8, 2}, {.batch_norm = true, .last_relu = true});
  EXPECT_GE(model->forward(torch::rand({9, 3, 8, 8})).min().item<float>(), 0);
  // Two convolutions; only the first has a BatchNorm.
  EXPECT_EQ(model->parameters().size(), 6);
  EXPECT_FLOAT_EQ(model->named_parameters()["2.bias"][0].item<float>(), 1e-3f);
}

TEST(SimpleCnn, AcceptsKernelSizesAndStrides) {
  auto model =
      simple_cnn({1, 4, 2}, {.kernel_sizes = {5, 1}, .strides = {1, 1}});
  EXPECT_EQ(model->parameters()[0].size(3), 5);
  EXPECT_EQ(model->parameters()[2].size(3), 1);
  // An even kernel pads as in fastai.
  auto even = simple_cnn({1, 2}, {.kernel_sizes = {4}, .strides = {1}});
  const auto p = even->parameters();
  const auto x = torch::rand({2, 1, 9, 9});
  const auto expected = torch::conv2d(x, p[0], p[1], 1, 1).mean({2, 3});
  EXPECT_TRUE(torch::allclose(even->forward(x), expected, 1e-4, 1e-6));
}

TEST(SimpleCnn, InitializesWeightsWithKaimingNormalAndBiasesWithZero) {
  torch::manual_seed(1);
  auto model = simple_cnn({64, 64, 2});
  const auto p = model->parameters();
  EXPECT_NEAR(p[0].std().item<double>(), std::sqrt(2.0 / (64 * 9)), 1e-3);
  EXPECT_EQ(p[1].abs().max().item<float>(), 0);
}

TEST(SimpleCnn, KeepsItsWeightsChannelsLast) {
  auto model = simple_cnn({3, 16, 2});
  for (const auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) {
      EXPECT_TRUE(parameter.is_contiguous(torch::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(parameter.is_leaf());
    }
  }
}

TEST(SimpleCnn, RejectsInvalidArguments) {
  expect_error<c10::ValueError>([&] { simple_cnn({3}); }, {"channels is {3}"});
  expect_error<c10::ValueError>(
      [&] {
        simple_cnn({3, 0});
      },
      {"channels is {3, 0}"});
  expect_error<c10::ValueError>(
      [&] {
        simple_cnn({3, 4, 2}, {.kernel_sizes = {3}});
      },
      {"kernel_sizes is {3}; expected 2"});
  expect_error<c10::ValueError>(
      [&] {
        simple_cnn({3, 4, 2}, {.strides = {1, -1}});
      },
      {"strides is {1, -1}"});
}

}  // namespace
}  // namespace tern::simple_cnn_test
