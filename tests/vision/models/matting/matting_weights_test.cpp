
#include <gtest/gtest.h>

#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace tern::matting_weights_test {
namespace {

using torch::Tensor;

StateDict state_of(const Model& model) {
  StateDict state;
  for (const auto& item : model.state_dict()) {
    state.insert(item.key(), item.value().clone());
  }
  return state;
}

bool shares_weights(
    const StateDict& a,
    const StateDict& b,
    const std::string& name) {
  return torch::equal(a[name], b[name]);
}

TEST(MattingWeights, AreLoadedFromTheBaseIntoTheWholeNetworkAndBack) {
  const TempFolder temp;
  const Model base = MattingBase();
  save_pth(temp / "base.pth", base.state_dict());
  const Model refine = MattingRefine();
  const StateDict before = state_of(refine);
  const LoadReport report = load_matting_weights(refine, temp / "base.pth");
  EXPECT_EQ(report.loaded, static_cast<int64_t>(base.state().size()));
  const StateDict after = state_of(refine);
  EXPECT_TRUE(shares_weights(after, base.state_dict(), "decoder.conv4.weight"));
  EXPECT_TRUE(shares_weights(after, before, "refiner.conv1.weight"));

  save_safetensors(temp / "refine.safetensors", refine.state_dict());
  const Model again = MattingBase();
  load_matting_weights(again, temp / "refine.safetensors");
  EXPECT_TRUE(test::same_state(again.state_dict(), state_of(base)));
}

TEST(MattingWeights, RejectsADifferentBackbone) {
  const TempFolder temp;
  const MattingBase other(MattingBaseOptions{MattingBackbone::resnet50});
  save_safetensors(temp / "other.safetensors", Model(other).state_dict());
  const Model model = MattingRefine();
  const StateDict before = state_of(model);
  expect_error<c10::ValueError>(
      [&] { load_matting_weights(model, temp / "other.safetensors"); },
      {"has weights of resnet50",
       "built on mobilenet_v2",
       "pass a different file"});
  expect_error<c10::ValueError>(
      [&] {
        load_matting_weights(
            MattingBase(MattingBaseOptions{MattingBackbone::resnet101}),
            temp / "other.safetensors");
      },
      {"has weights of resnet50", "built on resnet101"});
  StateDict none;
  none.insert("fc.weight", torch::ones(2));
  save_safetensors(temp / "none.safetensors", none);
  expect_error<c10::ValueError>(
      [&] { load_matting_weights(model, temp / "none.safetensors"); },
      {"no matting backbone"});
  EXPECT_TRUE(test::same_state(model.state_dict(), before));
}

TEST(MattingWeights, RejectsIncompletePartsAndADifferentKernelSize) {
  const TempFolder temp;
  const Model model = MattingRefine();
  const StateDict before = state_of(model);
  save_safetensors(
      temp / "cut.safetensors",
      test::without(before, {"aspp.project.0.weight"}));
  expect_error<c10::ValueError>(
      [&] { load_matting_weights(model, temp / "cut.safetensors"); },
      {"has no \"aspp.project.0.weight\"", "expected all of them"});
  const MattingRefine small(MattingRefineOptions{.kernel_size = 1});
  save_safetensors(temp / "small.safetensors", Model(small).state_dict());
  expect_error<c10::ValueError>(
      [&] { load_matting_weights(model, temp / "small.safetensors"); },
      {"refiner.conv1.weight"});
  EXPECT_TRUE(test::same_state(model.state_dict(), before));
}

TEST(MattingWeights, InitializeBackboneAndAsppFromADeepLabV3) {
  const TempFolder temp;
  StateDict deeplab;
  for (const auto& item : state_of(MattingBase())) {
    std::string name = item.key();
    Tensor tensor = item.value();
    if (name.starts_with("decoder.")) continue;
    if (name.starts_with("aspp.")) {
      name = "classifier.classifier.0." + name.substr(5);
    }
    if (name == "backbone.features.0.0.weight")
      tensor = torch::ones({32, 3, 3, 3});
    if (name.starts_with("backbone.features.1.")) {
      name = "backbone.low_level_features.1." + name.substr(20);
    } else if (name.starts_with("backbone.features.9.")) {
      name = "backbone.high_level_features.9." + name.substr(20);
    }
    deeplab.insert("module." + name, tensor);
  }
  deeplab.insert("module.classifier.classifier.3.weight", torch::ones(2));
  save_safetensors(temp / "deeplab.safetensors", deeplab);
  const Model model = MattingBase();
  const StateDict before = state_of(model);
  const LoadReport report =
      load_matting_weights(model, temp / "deeplab.safetensors");
  EXPECT_EQ(report.mismatched.size(), 1);
  const StateDict after = state_of(model);
  EXPECT_TRUE(shares_weights(before, after, "backbone.features.0.0.weight"));
  EXPECT_TRUE(shares_weights(before, after, "decoder.conv1.weight"));
  EXPECT_TRUE(torch::equal(
      after["aspp.convs.0.0.weight"],
      deeplab["module.classifier.classifier.0.convs.0.0.weight"]));
  EXPECT_TRUE(torch::equal(
      after["backbone.features.9.conv.0.0.weight"],
      deeplab["module.backbone.high_level_features.9.conv.0.0.weight"]));
}

}  // namespace
}  // namespace tern::matting_weights_test
