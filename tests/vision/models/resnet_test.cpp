#include "tern/vision/models/resnet.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"

namespace tern::resnet_test {
namespace {

TEST(ResNet, StartsBlocksAsTheIdentityIfAsked) {
  ResNet net = resnet18({.num_classes = 2, .zero_init_residual = true});
  const auto weights = net->named_parameters();
  EXPECT_EQ(weights["layer2.1.bn2.weight"].abs().sum().item<float>(), 0);
  EXPECT_EQ(weights["layer2.1.bn1.weight"].sum().item<float>(), 128);
}

TEST(ResNet, StartsConvolutionsAsHeEtAlSay) {
  torch::manual_seed(0);
  const auto weights = resnet18()->named_parameters();
  // Variance 2 / fan_out: 512 channels of 3 x 3.
  EXPECT_NEAR(
      weights["layer4.1.conv2.weight"].std().item<double>(),
      std::sqrt(2.0 / (512 * 9)),
      2e-4);
}

TEST(ResNet, GivesMeansOfItsFeaturesWithoutAClassifier) {
  ResNet net = resnet18({.num_classes = 0});
  net->eval();
  EXPECT_EQ(net->named_parameters().find("fc.weight"), nullptr);
  const auto x = torch::rand({2, 3, 64, 64});
  EXPECT_TRUE(torch::allclose(
      net->forward(x),
      net->features(x).mean({2, 3}),
      1e-4,
      1e-5));
}

TEST(ResNet, RefusesNegativeSizes) {
  expect_error<c10::ValueError>(
      [] { resnet18({.num_classes = -1}); },
      {"num_classes is -1"});
  expect_error<c10::ValueError>(
      [] { resnet50({.in_channels = -1}); },
      {"in_channels is -1"});
}

}  // namespace
}  // namespace tern::resnet_test
