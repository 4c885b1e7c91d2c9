#include "tern/vision/models/detection/retinanet.h"

#include <cmath>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "tern/learner/amp/autocast.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/export/torchscript.h"
#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/models/detection/fixture.h"
#include "tern/vision/models/build_model.h"

namespace tern::retinanet_test {
namespace {

using testing_support::crc_of;
using testing_support::detection_fixture;
using testing_support::expect_products;
using testing_support::fill_as_python;
using testing_support::retinanet_anchors;
using testing_support::some;
using torch::Tensor;

ResNet small_v1(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 1, 1, 1}}, options);
}
ResNet small_v2(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 1, 1, 1}, true}, options);
}

ViT small_vit(const ViTOptions& options) {
  return ViT(ViTShape{.width = 64, .depth = 2, .heads = 4}, options);
}

RetinaNet small(bool is_v2, RetinaNetOptions options = {.num_classes = 3}) {
  options.group_norm = options.p6_of_c5 = is_v2;
  return RetinaNet(
      is_v2 ? VisionArch(small_v2) : VisionArch(small_v1),
      options);
}

Tensors images() {
  return {some({2, 3, 64, 48}, 3), some({1, 3, 43, 37}, 3)};
}

TEST(RetinaNetTest, HasTorchvisionsNames) {
  for (const std::string& name : detection_models()) {
    const RetinaNet net = detection_model(name, 91);
    std::string all;
    for (const ModelTensor& item : Model(net).state()) {
      if (!all.empty()) all += "\n";
      all += fmt::format(
          "{} [{}]",
          item.name,
          fmt::join(item.tensor.sizes(), ", "));
    }
    EXPECT_EQ(crc_of(all), detection_fixture()["names"][name].get<uint32_t>())
        << all;
  }
}

TEST(RetinaNetTest, OutputsAndGradientsMatchTorchvision) {
  for (const bool is_v2 : {false, true}) {
    const nlohmann::json& python =
        detection_fixture()["networks"][is_v2 ? "v2" : "v1"];
    RetinaNet net = small(is_v2);
    net->to(torch::kDouble);
    fill_as_python(Model(net));
    net->eval();
    for (size_t i = 0; i < images().size(); ++i) {
      const testing::ScopedTrace trace(
          __FILE__,
          __LINE__,
          fmt::format("{} {}", is_v2, i));
      Tensors outputs = net->forward(images()[i]);
      ASSERT_EQ(outputs.size(), 4u);
      outputs.pop_back();
      expect_products(outputs, python["eval"][i], 1e-7);
    }
    net->train();
    const Tensors y = net->forward(images()[0]);
    ((y[0] * some(y[0].sizes(), 5)).sum() +
     (y[1] * some(y[1].sizes(), 6)).sum())
        .backward();
    Tensors gradients;
    for (const ModelTensor& item : Model(net).parameters()) {
      gradients.push_back(item.tensor.grad());
    }
    expect_products(gradients, python["gradients"], 1e-6);
  }
}

TEST(RetinaNetTest, OutputsItsAnchorsAndImageSizes) {
  const torch::NoGradGuard no_grad;
  RetinaNet net = small(false);
  net->eval();
  const torch::Tensor x = images()[0].to(torch::kFloat);
  const auto check = [&](const Tensors& y, torch::ScalarType type) {
    EXPECT_EQ(y[0].sizes(), (std::vector<int64_t>{2, y[2].size(1), 3}));
    EXPECT_EQ(y[1].sizes(), y[2].sizes());
    EXPECT_EQ(y[0].scalar_type(), type);
    EXPECT_EQ(y[1].scalar_type(), type);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(test::bit_equal(y[2][i], retinanet_anchors(64, 64)));
    }
    EXPECT_TRUE(test::bit_equal(
        y[3],
        torch::tensor({{64., 48.}, {64., 48.}}, torch::kFloat)));
  };
  check(net->forward(x), torch::kFloat);
  {
    const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
    check(net->forward(x), torch::kBFloat16);
  }
  net->to(torch::kBFloat16);
  check(net->forward(x.to(torch::kBFloat16)), torch::kBFloat16);
}

// Anchors are at whole strides, so a feature map that is rounded up would be
// stretched over its anchors.
TEST(RetinaNetTest, BoxesDoNotDependOnPaddingUpTo32Pixels) {
  const torch::NoGradGuard no_grad;
  RetinaNet net = small(true);
  net->eval();
  const Tensor image = torch::rand({1, 3, 96, 128});
  const Tensor cut = image.slice(2, 0, 70).slice(3, 0, 100);
  const Tensor padded =
      torch::constant_pad_nd(cut, {0, 28, 0, 26}).contiguous();
  const Tensors outputs = net->forward(cut), expected = net->forward(padded);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(outputs[i], expected[i])) << i;
  }
  EXPECT_TRUE(
      torch::equal(outputs[3], torch::tensor({{70, 100}}, torch::kFloat)));
}

TEST(RetinaNetTest, InitializesWeightsLikeTorchvision) {
  torch::manual_seed(2);
  for (const bool is_v2 : {false, true}) {
    for (const auto& item : small(is_v2)->named_parameters()) {
      const std::string& name = item.key();
      if (!name.starts_with("head.")) continue;
      const torch::Tensor& tensor = item.value();
      if (name.ends_with("cls_logits.bias")) {
        EXPECT_TRUE(
            test::all_close(tensor, torch::full_like(tensor, -std::log(99.))));
      } else if (tensor.dim() == 4) {
        EXPECT_NEAR(tensor.std().item<double>(), 0.01, 2e-4) << name;
        EXPECT_NEAR(tensor.mean().item<double>(), 0, 2e-4) << name;
      } else {
        const double expected = name.ends_with("weight") ? 1 : 0;
        EXPECT_TRUE((tensor == expected).all().item<bool>()) << name;
      }
    }
  }
}

TEST(RetinaNetTest, FrozenBatchNormKeepsItsStatisticsAndWeights) {
  RetinaNet net = small(false, {.num_classes = 3, .frozen_norm = true});
  net->train();
  EXPECT_TRUE(net->is_training());
  const std::string name = "backbone.body.layer1.0.bn1.";
  const auto at = [&](const std::string& tensor) {
    const auto parameters = net->named_parameters();
    return parameters.contains(name + tensor)
               ? parameters[name + tensor]
               : net->named_buffers()[name + tensor];
  };
  EXPECT_FALSE(at("weight").requires_grad());
  const torch::Tensor before = at("running_mean").clone();
  net->forward(images()[0].to(torch::kFloat))[0].sum().backward();
  EXPECT_TRUE(before.equal(at("running_mean")));

  net = small(false);
  net->forward(images()[0].to(torch::kFloat))[0].sum().backward();
  EXPECT_TRUE(at("weight").requires_grad());
  EXPECT_FALSE(before.equal(at("running_mean")));
}

TEST(RetinaNetTest, ACloneReturnsTheSameOutputs) {
  const torch::NoGradGuard no_grad;
  RetinaNet net = small(true);
  const auto clone = std::dynamic_pointer_cast<RetinaNetImpl>(net->clone());
  net->eval();
  clone->eval();
  const torch::Tensor x = images()[0].to(torch::kFloat);
  const Tensors y = net->forward(x), z = clone->forward(x);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(y[i].equal(z[i])) << i;
}

TEST(RetinaNetTest, IsRebuiltFromItsArchitecture) {
  const RetinaNet net = retinanet_resnet18_fpn(
      {.num_classes = 5, .norm_eps = 0, .smallest_anchor = 20});
  const Architecture architecture = net->architecture();
  EXPECT_EQ(architecture.name, "retinanet");
  const Model again = build_model(architecture);
  EXPECT_EQ(*architecture_of(again), architecture);
  const auto tensors = again.state();
  ASSERT_EQ(tensors.size(), Model(net).state().size());
  // The first square of the finest level is at its first position.
  const torch::NoGradGuard no_grad;
  const Tensors x = {torch::zeros({1, 3, 64, 64})};
  const torch::Tensor anchors = Model(again).forward(x)[2];
  EXPECT_TRUE(anchors.equal(Model(net).forward(x)[2]));
  EXPECT_TRUE(anchors[0][3].equal(torch::tensor({-10.f, -10.f, 10.f, 10.f})));
}

// The export compares the file with the network before it writes it.
TEST(RetinaNetTest, IsExportedToOnnx) {
  const TempFolder folder;
  for (const bool is_v2 : {false, true}) {
    RetinaNet net = small(is_v2);
    net->eval();
    export_onnx(net, folder / "net.onnx", {images()[0].to(torch::kFloat)});
    EXPECT_TRUE(std::filesystem::exists(folder / "net.onnx"));
    std::filesystem::remove(folder / "net.onnx");
  }
}

// The file computes anchors and sizes; the export compares them at a third
// size.
TEST(RetinaNetTest, IsExportedToOnnxForImagesOfAnySize) {
  const TempFolder folder;
  RetinaNet net = small(false);
  net->eval();
  const Tensor example = some({1, 3, 64, 48}, 3).to(torch::kFloat);
  export_onnx(net, folder / "net.onnx", {example}, {.dynamic_size = true});
  EXPECT_TRUE(std::filesystem::exists(folder / "net.onnx"));
}

// TorchScript too.
TEST(RetinaNetTest, IsTracedForImagesOfAnySize) {
  const torch::NoGradGuard no_grad;
  const TempFolder folder;
  RetinaNet net = small(false);
  net->eval();
  // A height of 50 is padded like the next heights that a trace tries.
  for (const int64_t side : {64, 50}) {
    const Tensor example = some({1, 3, side, 48}, 3).to(torch::kFloat);
    export_torchscript(net, folder / "net.pt", {example});
    Model traced = load_torchscript_trusted(folder / "net.pt");
    for (const auto& [height, width] :
         {std::pair<int64_t, int64_t>{side, 48}, {97, 131}}) {
      const Tensor x = some({2, 3, height, width}, 4).to(torch::kFloat);
      const Tensors expected = net->forward(x), actual = traced.forward({x});
      for (size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(actual.at(i).sizes(), expected[i].sizes());
        const double error = i < 2 ? 1e-4 : 0;  // anchors and sizes exactly
        EXPECT_TRUE(torch::allclose(actual[i], expected[i], error, error))
            << side << " " << i;
      }
    }
  }
}

class RetinaNetFilesTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const StateDict& state) {
    save_safetensors(folder_ / name, state);
    return folder_ / name;
  }

  TempFolder folder_;
};

void expect_equal_states(const RetinaNet& a, const RetinaNet& b) {
  const auto ours = Model(a).state(), theirs = Model(b).state();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].name.ends_with("num_batches_tracked")) continue;
    EXPECT_TRUE(ours[i].tensor.equal(theirs[i].tensor)) << ours[i].name;
  }
}

TEST_F(RetinaNetFilesTest, LoadsFilesOfFrozenBatchNormAndOldVersions) {
  const RetinaNet from = small(false);
  StateDict frozen, old;
  for (const ModelTensor& item : Model(from).state()) {
    // FrozenBatchNorm2d has no such buffers.
    if (item.name.ends_with("num_batches_tracked")) continue;
    frozen.insert("module." + item.name, item.tensor);
    std::string name = item.name;
    const auto change = [&](const std::string& part, int step) {
      const size_t at = name.find(part);
      if (at == name.npos) return;
      const size_t digit = at + part.size();
      const int number = (name[digit] - '0') * step;
      name = name.substr(0, digit) + std::to_string(number) +
             name.substr(digit + 3);
    };
    change("_head.conv.", 2);
    change("inner_blocks.", 1);
    change("layer_blocks.", 1);
    old.insert(name, item.tensor);
  }
  EXPECT_TRUE(old.contains("head.regression_head.conv.6.bias"));
  EXPECT_TRUE(old.contains("backbone.fpn.layer_blocks.2.weight"));
  for (const auto& [name, state] :
       {std::pair("frozen", frozen), std::pair("old", old)}) {
    const RetinaNet to = small(false);
    const LoadReport report = load_detector_weights(to, file(name, state));
    EXPECT_TRUE(report.skipped.empty());
    expect_equal_states(from, to);
  }
}

TEST_F(RetinaNetFilesTest, KeepsItsLastLayerIfTheFileHasOtherClasses) {
  const RetinaNet from = small(true);
  const RetinaNet to = small(true, {.num_classes = 7});
  const LoadReport report =
      load_detector_weights(to, file("three", Model(from).state_dict()));
  EXPECT_EQ(
      report.skipped,
      (std::vector<std::string>{
          "head.classification_head.cls_logits.weight",
          "head.classification_head.cls_logits.bias"}));
  EXPECT_TRUE(
      to->named_parameters()["head.regression_head.bbox_reg.weight"].equal(
          from->named_parameters()["head.regression_head.bbox_reg.weight"]));
}

TEST_F(RetinaNetFilesTest, RejectsWeightsOfADifferentNetwork) {
  const RetinaNet to = small(false);
  const StateDict before = Model(to).state_dict();
  const torch::Tensor bias =
      before["head.regression_head.bbox_reg.bias"].clone();
  expect_error<c10::ValueError>(
      [&] {
        load_detector_weights(
            to,
            file("other", Model(small(true)).state_dict()));
      },
      {"[load_detector_weights]",
       "does not hold the weights of this detector"});
  EXPECT_TRUE(
      bias.equal(Model(to).state_dict()["head.regression_head.bbox_reg.bias"]));
}

TEST_F(RetinaNetFilesTest, InitializesTheBackboneFromAClassifier) {
  torch::manual_seed(3);
  const ResNet classifier = resnet18();
  const RetinaNet net = detection_model(
      "retinanet_resnet18_fpn",
      5,
      {.pretrained = DetectorWeights::imagenet,
       .file = file("resnet18", Model(classifier).state_dict())});
  EXPECT_TRUE(net->options().frozen_norm);
  EXPECT_TRUE(
      net->named_parameters()["backbone.body.layer4.1.conv2.weight"].equal(
          classifier->named_parameters()["layer4.1.conv2.weight"]));
}

TEST_F(RetinaNetFilesTest, InitializesFromADetector) {
  const RetinaNet from = retinanet_resnet50_fpn({.num_classes = 91});
  std::string output;
  const RetinaNet net = detection_model(
      "retinanet_resnet50_fpn",
      20,
      {.pretrained = DetectorWeights::coco,
       .file = file("coco", Model(from).state_dict()),
       .frozen_norm = false,
       .sink = [&](const std::string& line) { output += line; }});
  EXPECT_NE(
      output.find("the classification layer of 20 classes is not loaded"),
      std::string::npos)
      << output;
  EXPECT_FALSE(net->options().frozen_norm);
  EXPECT_EQ(net->options().num_classes, 20);
  // torchvision's eps for these weights.
  for (const auto& module : net->modules()) {
    if (const auto* norm = module->as<torch::nn::BatchNorm2d>()) {
      EXPECT_EQ(norm->options.eps(), 0);
    }
  }
}

TEST(RetinaNetTest, HasUrlsOfPretrainedWeights) {
  EXPECT_EQ(
      published_detector("retinanet_resnet50_fpn").url,
      "https://download.pytorch.org/models/"
      "retinanet_resnet50_fpn_coco-eeacb38b.pth");
  EXPECT_EQ(
      published_detector("retinanet_resnet50_fpn_v2").url,
      "https://download.pytorch.org/models/"
      "retinanet_resnet50_fpn_v2_coco-5905b1c5.pth");
}

TEST(RetinaNetTest, RejectsInvalidArguments) {
  expect_error<c10::ValueError>(
      [] { detection_model("yolo", 3); },
      {"[detection_model] there is no detector \"yolo\"; expected one of "
       "retinanet_resnet18_fpn, retinanet_resnet18_fpn_v2, "
       "retinanet_resnet50_fpn, "
       "retinanet_resnet50_fpn_v2."});
  expect_error<c10::ValueError>(
      [] { published_detector("retinanet_resnet18_fpn"); },
      {"[published_detector] there are no pretrained weights for "
       "retinanet_resnet18_fpn; expected one of retinanet_resnet50_fpn"});
  expect_error<c10::ValueError>(
      [] { small(false, {.smallest_anchor = 1.5}); },
      {"the smallest anchor is 1.5 pixels wide; expected at least 2"});
  expect_error<c10::ValueError>(
      [] {
        detection_model(
            "retinanet_resnet50_fpn",
            3,
            {.pretrained = DetectorWeights::coco, .smallest_anchor = 16});
      },
      {"smallest_anchor is 16 with COCO weights"});
  expect_error<c10::ValueError>(
      [] { detection_model("retinanet_resnet18_fpn", 3, {.file = "a.pth"}); },
      {"[detection_model] the file a.pth is given, but pretrained is none"});
  expect_error<c10::ValueError>(
      [] { small(false, {.num_classes = 0}); },
      {"[RetinaNet] num_classes is 0"});
  expect_error<c10::ValueError>(
      [] { RetinaNet(VisionArch(small_vit), RetinaNetOptions()); },
      {"[RetinaNet] your own network has no 3 feature maps"});
}

}  // namespace
}  // namespace tern::retinanet_test
