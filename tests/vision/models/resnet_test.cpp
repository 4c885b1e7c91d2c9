#include "tern/vision/models/resnet.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/model.h"
#include "tern/tests/support/expect_error.h"

namespace tern::resnet_test {
namespace {

using nlohmann::json;

// Written by resnet_fixture.py with torchvision.
const json& fixture() {
  static const json fixture = json::parse(
      std::ifstream(TERN_TESTS_FOLDER "/vision/models/resnet_fixture.json"));
  return fixture;
}

ResNet make(const std::string& name) {
  const ResNetOptions options{.num_classes = 10};
  if (name == "resnet18") return resnet18(options);
  if (name == "resnet34") return resnet34(options);
  return resnet50(options);
}

// As resnet_fixture.py fills them.
void fill(torch::Tensor tensor, int64_t index) {
  const double n = static_cast<double>(tensor.numel());
  const auto wave = torch::cos(
      torch::arange(tensor.numel(), torch::kDouble) * 0.37 +
      static_cast<double>(index));
  const auto values =
      tensor.dim() > 1
          ? wave * std::sqrt(2 / (n / static_cast<double>(tensor.size(0))))
          : 1 + 0.1 * wave;
  tensor.copy_(values.reshape(tensor.sizes()));
}

// Parameters and buffers by name.
std::map<std::string, torch::Tensor> state_of(ResNet& net) {
  std::map<std::string, torch::Tensor> state;
  for (const auto& item : net->named_parameters()) {
    state[item.key()] = item.value();
  }
  for (const auto& item : net->named_buffers()) {
    state[item.key()] = item.value();
  }
  return state;
}

class ResNetTest : public testing::TestWithParam<std::string> {};

TEST_P(ResNetTest, HasTorchvisionsNamesAndShapes) {
  ResNet net = make(GetParam());
  const auto state = state_of(net);
  const json& expected = fixture()["models"][GetParam()]["tensors"];
  EXPECT_EQ(state.size(), expected.size());
  for (const json& tensor : expected) {
    const auto found = state.find(tensor[0].get<std::string>());
    ASSERT_NE(found, state.end()) << tensor[0];
    EXPECT_EQ(
        found->second.sizes().vec(),
        tensor[1].get<std::vector<int64_t>>())
        << tensor[0];
  }
}

TEST_P(ResNetTest, AnswersAsTorchvisionDoes) {
  const torch::NoGradGuard no_grad;
  ResNet net = make(GetParam());
  net->eval();
  const auto state = state_of(net);
  int64_t index = 0;
  for (const json& item : fixture()["models"][GetParam()]["tensors"]) {
    const torch::Tensor tensor = state.at(item[0].get<std::string>());
    if (tensor.is_floating_point()) fill(tensor, index);
    ++index;
  }
  const auto x =
      torch::sin(torch::arange(2 * 3 * 64 * 48, torch::kDouble) * .01)
          .to(torch::kFloat)
          .reshape({2, 3, 64, 48});
  const auto y = net->forward(x).flatten().to(torch::kDouble);
  const auto expected = torch::tensor(
      fixture()["models"][GetParam()]["output"].get<std::vector<double>>(),
      torch::kDouble);
  EXPECT_LE(
      ((y - expected).abs().max() / expected.abs().max()).item<double>(),
      1e-5);
}

TEST_P(ResNetTest, ClonesWithItsWeights) {
  ResNet net = make(GetParam());
  net->eval();
  const auto copy = std::dynamic_pointer_cast<ResNetImpl>(net->clone());
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({1, 3, 32, 32});
  EXPECT_TRUE(torch::equal(net->forward(x), copy->forward(x)));
  EXPECT_FALSE(net->parameters()[0].is_same(copy->parameters()[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Depths,
    ResNetTest,
    testing::Values("resnet18", "resnet34", "resnet50"),
    [](const auto& info) { return info.param; });

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

TEST(ResNet, RefusesSizesThatAreNotPositive) {
  expect_error<c10::ValueError>(
      [] { resnet18({.num_classes = 0}); },
      {"num_classes is 0"});
  expect_error<c10::ValueError>(
      [] { resnet50({.in_channels = -1}); },
      {"in_channels is -1"});
}

}  // namespace
}  // namespace tern::resnet_test
