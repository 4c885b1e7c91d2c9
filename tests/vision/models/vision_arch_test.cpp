#include "tern/vision/models/vision_arch.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/dynamic_unet.h"

namespace tern::vision_arch_test {
namespace {

// Saves the network with a classifier for 1000 classes, like torchvision.
std::filesystem::path saved_resnet18(const TempFolder& temp) {
  torch::manual_seed(1);
  const auto file = temp / "resnet18.safetensors";
  save_safetensors(file, Model(resnet18()).state_dict());
  return file;
}

TEST(VisionArch, ReturnsFeaturesOfEachSize) {
  const torch::NoGradGuard no_grad;
  for (const char* name :
       {"resnet18", "resnet50", "xresnet50", "mobilenet_v2"}) {
    const VisionArch arch(name);
    EXPECT_EQ(arch.name(), name);
    const VisionBody body = arch.make_body(3);
    body.module->eval();
    const auto channels = body.backbone->stage_channels();
    const Tensors stages = body.backbone->stages(torch::rand({1, 3, 50, 39}));
    ASSERT_EQ(stages.size(), channels.size());
    for (size_t i = 0; i < stages.size(); ++i) {
      EXPECT_EQ(stages[i].size(1), channels[i]) << name;
      EXPECT_EQ(stages[i].size(2), std::ceil(50 / std::exp2(i + 1))) << name;
    }
  }
  expect_error<c10::ValueError>(
      [] { VisionArch("vgg"); },
      {"no network \"vgg\"", "resnet18, resnet34"});
}

TEST(ClassifierHead, KeepsNumbersWithinYRange) {
  const auto head = [](std::vector<double> y_range) {
    torch::manual_seed(4);
    return classifier_head(
        6,
        2,
        {.hidden = {}, .pool = false, .y_range = std::move(y_range)});
  };
  const torch::Tensor x = 30 * torch::randn({8, 6});
  const torch::Tensor plain = head({})->forward(x);
  const torch::Tensor ranged = head({-1, 4.5})->forward(x);
  EXPECT_GT(plain.abs().max().item<double>(), 1);
  EXPECT_EQ(plain.sizes(), ranged.sizes());
  // Dropout drew the same numbers, so this is fastai's sigmoid_range of the
  // same logits.
  EXPECT_TRUE(torch::allclose(ranged, plain.sigmoid() * 5.5 - 1));
  for (const std::vector<double>& wrong :
       {std::vector<double>{3}, {2, 1}, {0, INFINITY}, {0, 1, 2}}) {
    expect_error<c10::ValueError>([&] { head(wrong); }, {"y_range is {"});
  }
}

TEST(VisionArch, RebuildsANetworkWithAllItsOptions) {
  const auto expect_again = [](const Model& model, Architecture expected) {
    EXPECT_EQ(architecture_of(model), expected);
    EXPECT_EQ(architecture_of(build_model(expected)), expected);
    EXPECT_EQ(architecture_of(Model(model.module()->clone())), expected);
  };
  expect_again(
      mobilenet_v2(
          {.num_classes = 0,
           .in_channels = 4,
           .dropout = 0.5,
           .output_stride = 16,
           .last_convolution = false}),
      {"mobilenet_v2",
       R"({"num_classes": 0, "in_channels": 4, "dropout": 0.5, )"
       R"("output_stride": 16, "last_convolution": false})"});
  expect_again(
      efficientnet_b0({.num_classes = 2, .stochastic_depth = 0.1}),
      {"efficientnet_b0",
       R"({"num_classes": 2, "in_channels": 3, "dropout": null, )"
       R"("stochastic_depth": 0.1})"});
  expect_again(
      vit_b_32(
          {.num_classes = 2,
           .image_size = 64,
           .dropout = 0.1,
           .attention_dropout = 0.2,
           .stochastic_depth = 0.3}),
      {"vit_b_32",
       R"({"num_classes": 2, "in_channels": 3, "image_size": 64, )"
       R"("dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.3})"});
  // A shape without a name.
  EXPECT_EQ(
      architecture_of(XResNet(ResNetShape{{1, 1, 1, 1}}, XResNetOptions{})),
      std::nullopt);
}

TEST(VisionArch, KeepsImagesChannelsLast) {
  const torch::NoGradGuard no_grad;
  const auto x =
      torch::rand({2, 3, 64, 64}).contiguous(torch::MemoryFormat::ChannelsLast);
  for (const char* name : {"resnet18", "xresnet18", "mobilenet_v2"}) {
    const VisionBody body = VisionArch(name).make_body(3);
    for (const auto& map : body.backbone->stages(x)) {
      EXPECT_TRUE(map.is_contiguous(torch::MemoryFormat::ChannelsLast)) << name;
    }
    for (const auto& weight : body.module->parameters()) {
      EXPECT_TRUE(
          weight.dim() != 4 ||
          weight.is_contiguous(torch::MemoryFormat::ChannelsLast))
          << name;
    }
  }
}

TEST(VisionArch, LoadsTheBodyFromAFileWithoutItsClassifier) {
  const TempFolder temp;
  const auto file = saved_resnet18(temp);
  const VisionArch arch = resnet18;
  const VisionBody body = arch.make_body(3);
  arch.load_pretrained(body, file);
  const StateDict saved = load_weights(file);
  for (const auto& item : body.module->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), saved[item.key()])) << item.key();
  }
}

TEST(VisionArch, NamesMissingAndUnexpectedWeights) {
  const TempFolder temp;
  const auto file = saved_resnet18(temp);
  const VisionArch deeper = resnet34, wider = resnet50, here = resnet18;
  expect_error<c10::ValueError>(
      [&] { deeper.load_pretrained(deeper.make_body(3), file); },
      {"resnet18.safetensors", "resnet34", "layer1.2.conv1.weight"});
  expect_error<c10::ValueError>(
      [&] { wider.load_pretrained(wider.make_body(3), file); },
      {"layer1.0.conv1.weight", "[64, 64, 3, 3]"});
  // Some of these weights would fit, but loading them would be useless.
  save_safetensors(
      temp / "resnet34.safetensors",
      Model(resnet34({.num_classes = 2})).state_dict());
  expect_error<c10::ValueError>(
      [&] {
        here.load_pretrained(here.make_body(3), temp / "resnet34.safetensors");
      },
      {"resnet18", "layer1.2"});
}

TEST(VisionArch, AdaptsTheFirstConvolutionToAnyNumberOfChannels) {
  const TempFolder temp;
  const auto file = saved_resnet18(temp);
  const torch::Tensor rgb = load_weights(file)["conv1.weight"];
  const VisionArch arch = resnet18;
  const auto first = [&](int64_t channels) {
    const VisionBody body = arch.make_body(channels);
    arch.load_pretrained(body, file);
    return body.module->parameters()[0];
  };
  EXPECT_TRUE(torch::allclose(first(1), rgb.sum(1, true)));
  EXPECT_TRUE(torch::allclose(first(2), rgb.narrow(1, 0, 2) * 1.5));
  EXPECT_TRUE(torch::equal(first(4).narrow(1, 0, 3), rgb));
  EXPECT_EQ(first(4).select(1, 3).abs().sum().item<float>(), 0);
}

TEST(ClassifierHead, ConcatenatesMaxAndAveragePooling) {
  const auto x = torch::rand({2, 3, 4, 5});
  const auto pooled = ConcatPool()->forward(x).flatten(1);
  EXPECT_TRUE(torch::allclose(pooled.narrow(1, 0, 3), x.amax({2, 3})));
  EXPECT_TRUE(torch::allclose(pooled.narrow(1, 3, 3), x.mean({2, 3})));
}

TEST(ClassifierHead, InitializesWeightsLikeFastai) {
  torch::manual_seed(0);
  const auto weights = classifier_head(256, 300)->named_parameters();
  EXPECT_NEAR(
      weights["4.weight"].std().item<double>(),
      std::sqrt(2.0 / 512),
      1e-3);
  EXPECT_FLOAT_EQ(weights["2.bias"][0].item<float>(), 1e-3f);
  EXPECT_EQ(weights.find("8.bias"), nullptr);
}

TEST(ClassifierHead, HasTheGivenLayersAndDropout) {
  auto head =
      classifier_head(8, 2, {.hidden = {}, .dropout = 0, .concat_pool = false});
  EXPECT_EQ(head->size(), 4u);  // pooling, flatten, norm, linear
  EXPECT_EQ(head->forward(torch::rand({3, 8, 2, 2})).size(1), 2);
  expect_error<c10::ValueError>(
      [] { classifier_head(8, 0); },
      {"the widths are {16, 512, 0}"});
}

TEST(XResNet, InitializesBlocksAsTheIdentity) {
  const auto weights = xresnet18({.num_classes = 2})->named_parameters();
  EXPECT_EQ(weights["5.1.convpath.1.1.weight"].abs().sum().item<float>(), 0);
  EXPECT_EQ(weights["5.1.convpath.0.1.weight"].sum().item<float>(), 128);
}

TEST(MobileNetV2, InitializesWeightsLikeTorchvision) {
  torch::manual_seed(0);
  const auto weights = mobilenet_v2()->named_parameters();
  EXPECT_NEAR(
      weights["features.18.0.weight"].std().item<double>(),
      std::sqrt(2.0 / 1280),
      1e-4);
  EXPECT_NEAR(weights["classifier.1.weight"].std().item<double>(), 0.01, 1e-4);
}

TEST(DynamicUnet, InitializesUpsamplingAsNearestNeighbor) {
  const DynamicUnet unet(resnet18, DynamicUnetOptions{.outputs = 2});
  const StateDict state = Model(unet).state_dict();
  for (const char* up : {"shuf.0.0", "up0.shuf.0.0", "up3.shuf.0.0"}) {
    // Pixel shuffle turns four consecutive channels into a square.
    const torch::Tensor weight = state[std::string(up) + ".weight"];
    const torch::Tensor once = weight.slice(0, 0, weight.size(0), 4);
    EXPECT_TRUE(torch::equal(weight, once.repeat_interleave(4, 0))) << up;
    EXPECT_EQ(state[std::string(up) + ".bias"].count_nonzero().item<int>(), 0);
  }
}

TEST(DynamicUnet, SupportsOtherNetworksAndReturnsTheSizeOfTheImage) {
  const torch::NoGradGuard no_grad;
  DynamicUnet unet(
      mobilenet_v2,
      DynamicUnetOptions{.outputs = 2, .blur = true, .last_cross = false});
  EXPECT_EQ(
      unet->forward(torch::rand({2, 3, 35, 64})).sizes().vec(),
      (std::vector<int64_t>{2, 2, 35, 64}));
}

}  // namespace
}  // namespace tern::vision_arch_test
