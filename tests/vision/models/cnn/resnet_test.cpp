#include "tern/vision/models/cnn/resnet.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/mobilenet_v2.h"

namespace tern::resnet_test {
namespace {

/// Runs a training step with fused operations in kFloat and with separate ones
/// in kDouble, which always uses LibTorch's operations. Returns the largest
/// difference of a gradient or statistic, relative to its norm.
double fusing_error(const Model& model, uint64_t seed) {
  torch::manual_seed(seed);
  Model fused = model.with_module(model.module()->clone());
  Model separate = model.with_module(model.module()->clone());
  separate.module()->to(torch::kDouble);
  const torch::Tensor x = torch::rand({3, 3, 64, 64});
  fused.train();
  separate.train();
  const test::OpCalls fused_calls("tern::batch_norm_relu");
  const torch::Tensor y = fused.forward({x})[0];
  EXPECT_GT(fused_calls.count(), 0);
  const torch::Tensor expected = separate.forward({x.to(torch::kDouble)})[0];
  const torch::Tensor gradient = torch::rand(y.sizes());
  y.backward(gradient);
  expected.backward(gradient.to(torch::kDouble));
  const auto ours = fused.state(), theirs = separate.state();
  EXPECT_EQ(ours.size(), theirs.size());
  double largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const bool is_trained = ours[i].tensor.requires_grad();
    const torch::Tensor own =
        is_trained ? ours[i].tensor.grad() : ours[i].tensor;
    const torch::Tensor other =
        (is_trained ? theirs[i].tensor.grad() : theirs[i].tensor)
            .to(torch::kDouble);
    const double error = (own.to(torch::kDouble) - other).norm().item<double>();
    largest = std::max(largest, error / other.norm().item<double>());
  }
  return largest;
}

// Gradients jump if an activation near 0 has a different sign in kFloat than in
// kDouble: a single one of the 6,144 in layer4 changes some gradients by 2%.
// Some inputs have this effect, and others on other processors, but not all.
TEST(ResNet, FusedOperationsTrainLikeSeparateOnes) {
  const std::vector<Model> models = {
      ResNet(
          ResNetShape{.blocks = {1, 1, 1, 1}},
          ResNetOptions{.num_classes = 3}),
      ResNet(
          ResNetShape{.blocks = {1, 2, 1, 1}, .has_bottleneck = true},
          ResNetOptions{.num_classes = 3}),
      xresnet18({.num_classes = 3})};
  for (const Model& model : models) {
    double smallest = 1;
    for (uint64_t seed = 1; seed <= 6 && smallest > 1e-3; ++seed) {
      smallest = std::min(smallest, fusing_error(model, seed));
    }
    EXPECT_LE(smallest, 1e-3);
  }
}

TEST(ResNet, InitializesBlocksAsTheIdentityIfEnabled) {
  ResNet net = resnet18({.num_classes = 2, .zero_init_residual = true});
  const auto weights = net->named_parameters();
  EXPECT_EQ(weights["layer2.1.bn2.weight"].abs().sum().item<float>(), 0);
  EXPECT_EQ(weights["layer2.1.bn1.weight"].sum().item<float>(), 128);
}

TEST(ResNet, InitializesConvolutionsByHeEtAl) {
  torch::manual_seed(0);
  const auto weights = resnet18()->named_parameters();
  // The variance is 2 / fan_out, with 512 channels of 3 x 3.
  EXPECT_NEAR(
      weights["layer4.1.conv2.weight"].std().item<double>(),
      std::sqrt(2.0 / (512 * 9)),
      2e-4);
}

TEST(ResNet, ReturnsPooledFeaturesWithoutAClassifier) {
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

TEST(ResNet, DilationKeepsFinerFeatures) {
  const torch::NoGradGuard no_grad;
  for (const auto& [output_stride, height] :
       {std::pair(8, 8), std::pair(16, 4), std::pair(32, 2)}) {
    ResNet net = resnet50({.num_classes = 0, .output_stride = output_stride});
    EXPECT_EQ(net->features(torch::rand({2, 3, 64, 64})).size(2), height);
    MobileNetV2 small =
        mobilenet_v2({.num_classes = 0, .output_stride = output_stride});
    EXPECT_EQ(small->features(torch::rand({2, 3, 64, 64})).size(2), height);
  }
}

TEST(ResNet, IsRebuiltWithItsDilation) {
  const Model model = resnet18({.num_classes = 2, .output_stride = 16});
  EXPECT_EQ(
      architecture_of(build_model(*architecture_of(model))),
      architecture_of(model));
}

TEST(ResNet, IsRebuiltWithItsGroups) {
  const Model model =
      ResNet(ResNetShape{{1, 1, 1, 1}, true, 8, 4}, ResNetOptions{});
  const Model again = build_model(*architecture_of(model));
  EXPECT_EQ(architecture_of(again), architecture_of(model));
  EXPECT_EQ(
      again.state_dict()["layer2.0.conv2.weight"].sizes().vec(),
      (std::vector<int64_t>{64, 8, 3, 3}));
  EXPECT_EQ(
      architecture_of(resnext50_32x4d({.num_classes = 2}))->name,
      "resnext50_32x4d");
}

TEST(ResNet, RejectsNegativeSizes) {
  expect_error<c10::ValueError>(
      [] { resnet18({.num_classes = -1}); },
      {"num_classes is -1"});
  expect_error<c10::ValueError>(
      [] { resnet50({.in_channels = -1}); },
      {"in_channels is -1"});
  expect_error<c10::ValueError>(
      [] { resnet50({.output_stride = 4}); },
      {"output_stride is 4; expected 8, 16 or 32"});
  expect_error<c10::ValueError>(
      [] {
        ResNet(ResNetShape{{1, 1, 1, 1}, false, 8}, ResNetOptions{});
      },
      {"[ResNet] groups is 8 and width_per_group is 64"});
  expect_error<c10::ValueError>(
      [] { mobilenet_v2({.last_convolution = false}); },
      {"last_convolution is false"});
}

}  // namespace
}  // namespace tern::resnet_test
