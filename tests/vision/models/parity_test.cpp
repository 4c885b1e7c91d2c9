// Compares the networks with torchvision's and fastai's.
#include <map>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/vision/models/fixture.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"

namespace tern::model_parity_test {
namespace {

Model make(const std::string& name) {
  if (name == "resnet18") return resnet18({.num_classes = 10});
  if (name == "resnet34") return resnet34({.num_classes = 10});
  if (name == "resnet50") return resnet50({.num_classes = 10});
  if (name == "xresnet18") return xresnet18({.num_classes = 10});
  if (name == "xresnet34") return xresnet34({.num_classes = 10});
  if (name == "xresnet50") return xresnet50({.num_classes = 10});
  if (name == "mobilenet_v2") return mobilenet_v2({.num_classes = 10});
  if (name == "head") return classifier_head(24, 10);
  return DynamicUnet(resnet18, DynamicUnetOptions{.outputs = 3});
}

std::vector<std::vector<int64_t>> shapes_of(
    const std::vector<ModelTensor>& state) {
  std::vector<std::vector<int64_t>> shapes;
  for (const ModelTensor& item : state) {
    shapes.push_back(item.tensor.sizes().vec());
  }
  return shapes;
}

class NetworkTest : public testing::TestWithParam<std::string> {};

TEST_P(NetworkTest, MatchesNamesAndOutputsOfPython) {
  const Model model = make(GetParam());
  std::map<std::string, ModelTensor> by_name;
  for (const ModelTensor& item : model.state()) by_name[item.name] = item;
  const auto& fixture = model_fixture(GetParam());
  ASSERT_EQ(by_name.size(), fixture["tensors"].size());
  std::vector<ModelTensor> in_pythons_order;
  for (const auto& tensor : fixture["tensors"]) {
    const auto name = tensor[0].get<std::string>();
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(
        by_name[name].tensor.sizes().vec(),
        tensor[1].get<std::vector<int64_t>>())
        << name;
    in_pythons_order.push_back(by_name[name]);
  }
  EXPECT_LE(error_with_fixture_weights(model, in_pythons_order, fixture), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    NetworkTest,
    testing::Values(
        "resnet18",
        "resnet34",
        "resnet50",
        "xresnet18",
        "xresnet34",
        "xresnet50",
        "mobilenet_v2",
        "head"),
    [](const auto& info) { return info.param; });

class CloneTest : public testing::TestWithParam<std::string> {};

TEST_P(CloneTest, CopiesTheWeights) {
  Model model = make(GetParam());
  const auto copy = model.module()->clone();
  const auto weights = model.module()->parameters();
  const auto copied = copy->parameters();
  ASSERT_EQ(weights.size(), copied.size());
  EXPECT_TRUE(torch::equal(weights.back(), copied.back()));
  EXPECT_FALSE(weights[0].is_same(copied[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    CloneTest,
    testing::Values("resnet18", "xresnet18", "mobilenet_v2"),
    [](const auto& info) { return info.param; });

TEST(DynamicUnet, OutputsMatchFastai) {
  const Model model = make("unet");
  std::vector<std::vector<int64_t>> expected;
  for (const auto& tensor : model_fixture("unet")["tensors"]) {
    expected.push_back(tensor[1].get<std::vector<int64_t>>());
  }
  // fastai numbers its layers; their order is the same.
  ASSERT_EQ(shapes_of(model.state()), expected);
  EXPECT_LE(
      error_with_fixture_weights(model, model.state(), model_fixture("unet")),
      1e-5);
}

}  // namespace
}  // namespace tern::model_parity_test
