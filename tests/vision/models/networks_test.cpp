// Properties that networks of several families share: features, groups,
// precisions.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/interpret/grad_cam.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/vision_learner.h"

namespace tern::networks_test {
namespace {

// A small network of each family.
ConvNeXt convnext(const ConvNeXtOptions& options) {
  return ConvNeXt(ConvNeXtShape{{8, 16, 24, 32}, {1, 1, 2, 1}, 0.1}, options);
}
EfficientNet efficientnet(const EfficientNetOptions& options) {
  return EfficientNet(EfficientNetShape{0.25, 0.3, 0.2}, options);
}
RegNet regnet(const RegNetOptions& options) {
  return RegNet(RegNetShape{{16, 24, 32, 48}, {1, 1, 2, 1}, 8}, options);
}
DenseNet densenet(const DenseNetOptions& options) {
  return DenseNet(DenseNetShape{{2, 1, 2, 1}, 8}, options);
}
ResNet resnext(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 1, 2, 1}, true, 4, 4}, options);
}
// Seven blocks are the fewest that are split like vit_b_16's blocks.
constexpr ViTShape kSmallViT{.patch = 8, .width = 32, .depth = 7, .heads = 2};
ViT vit(const ViTOptions& options) {
  return ViT(kSmallViT, options);
}
TimmViT timm_vit(const ViTOptions& options) {
  return TimmViT(kSmallViT, options);
}
Swin swin(const SwinOptions& options) {
  return Swin(SwinShape{16, {1, 1, 2, 1}, {1, 2, 2, 4}}, options);
}

struct Family {
  const char* name;
  VisionArch arch;
  std::vector<int64_t> channels;  // after each stage
};

// ResNeXt's 2048 channels would create a U-Net of 100 million weights.
std::vector<Family> families_in_unets() {
  return {
      {"convnext", convnext, {8, 16, 24, 32}},
      {"efficientnet", efficientnet, {8, 8, 16, 32, 320}},
      {"regnet", regnet, {32, 16, 24, 32, 48}},
      {"densenet", densenet, {16, 32, 24, 28, 22}},
      {"mobilenet_v3", mobilenet_v3_small, {16, 16, 24, 48, 576}},
      {"swin", swin, {16, 32, 64, 128}}};
}

std::vector<Family> families_with_maps() {
  std::vector<Family> all = families_in_unets();
  all.push_back({"resnext", resnext, {64, 256, 512, 1024, 2048}});
  return all;
}

std::vector<Family> families() {
  std::vector<Family> all = families_with_maps();
  all.push_back({"vit", vit, {32}});
  all.push_back({"timm_vit", timm_vit, {32}});
  return all;
}

DataBunch halves(int64_t size) {
  torch::manual_seed(3);
  torch::Tensor images = torch::randint(60, {8, size, size, 3}, torch::kByte);
  const torch::Tensor labels = torch::arange(8) % 2;
  for (int64_t i = 0; i < 8; ++i) {
    images[i].slice(1, i % 2 * size / 2, (i % 2 + 1) * size / 2).add_(180);
  }
  const auto dataset =
      std::make_shared<TensorDataset>(Tensors{images}, Tensors{labels});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 8, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"left", "right"};
  data.batch_transforms.push_back(normalize({0.5, 0.5, 0.5}, {0.3, 0.3, 0.3}));
  return data;
}

Learner learner(const Family& family, int64_t size) {
  return vision_learner(
      halves(size),
      family.arch,
      {.head = {.hidden = {}, .dropout = 0},
       .learner = {.seed = 5, .sink = silent()}});
}

class FamilyTest : public testing::TestWithParam<Family> {};
class MapsTest : public FamilyTest {};
class UnetTest : public FamilyTest {};

TEST_P(MapsTest, ReturnsFeaturesChannelsLastAndTheirMeans) {
  const torch::NoGradGuard no_grad;
  const VisionBody body = GetParam().arch.make_body(4);
  body.module->eval();
  EXPECT_EQ(body.backbone->stage_channels(), GetParam().channels);
  const auto x =
      torch::rand({2, 4, 64, 96}).contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensors stages = body.backbone->stages(x);
  ASSERT_EQ(stages.size(), GetParam().channels.size());
  int64_t by = 32;
  for (size_t i = stages.size(); i-- > 0; by /= 2) {
    EXPECT_EQ(
        stages[i].sizes().vec(),
        (std::vector<int64_t>{2, GetParam().channels[i], 64 / by, 96 / by}));
    EXPECT_TRUE(stages[i].is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
  for (const torch::Tensor& weight : body.module->parameters()) {
    EXPECT_TRUE(
        weight.dim() != 4 ||
        weight.is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
  EXPECT_TRUE(torch::allclose(
      body.backbone->means(x),
      stages.back().mean({2, 3}),
      1e-4,
      1e-5));
}

TEST_P(FamilyTest, CloneKeepsNamesAndOutputs) {
  const torch::NoGradGuard no_grad;
  auto learn = learner(GetParam(), 64);
  Model copy = learn.model().with_module(learn.model().module()->clone());
  const StateDict state = learn.state_dict(), copied = copy.state_dict();
  ASSERT_EQ(state.keys(), copied.keys());
  for (const auto& item : state) {
    EXPECT_FALSE(item.value().is_same(copied[item.key()])) << item.key();
    EXPECT_TRUE(torch::equal(item.value(), copied[item.key()])) << item.key();
  }
  learn.model().eval();
  copy.eval();
  const auto x = torch::rand({2, 3, 64, 64});
  const torch::Tensor y = copy.forward({x})[0];
  EXPECT_TRUE(torch::equal(learn.model().forward({x})[0], y));
  for (torch::Tensor& weight : learn.model().module()->parameters()) {
    weight.zero_();
  }
  EXPECT_TRUE(torch::equal(copy.forward({x})[0], y));
}

TEST_P(FamilyTest, TrainsInEveryPrecisionWithThreeLayerGroups) {
  const std::vector<void (*)(Learner&)> precisions = {
      [](Learner&) {},
      [](Learner& learn) { learn.to_bf16(); },
      [](Learner& learn) { learn.to_amp(); },
      [](Learner& learn) {
        learn.to_amp(
            {.dtype = torch::kHalf,
             .scaler = GradScalerOptions{.init_scale = 1024}});
      },
      [](Learner& learn) {
        learn.to_fp16({.init_scale = 1024, .force_fp16 = true});
        const auto halves = std::ranges::count(
            learn.model().module()->parameters(),
            torch::kHalf,
            &torch::Tensor::scalar_type);
        EXPECT_GT(halves, 0);
      }};
  for (size_t i = 0; i < precisions.size(); ++i) {
    auto learn = learner(GetParam(), 32);
    EXPECT_EQ(parts_of(learn).groups.size(), 3);
    precisions[i](learn);
    learn.fit(4, 1e-3);
    const auto losses = learn.recorder().losses();
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_LT(losses.back(), losses.front()) << "precision " << i;
    for (const ModelTensor& item : learn.model().state()) {
      EXPECT_TRUE(item.tensor.isfinite().all().item<bool>()) << item.name;
    }
  }
}

TEST_P(UnetTest, PredictsEachPixel) {
  const torch::NoGradGuard no_grad;
  DynamicUnet unet(GetParam().arch, DynamicUnetOptions{.outputs = 2});
  EXPECT_EQ(
      unet->forward(torch::rand({2, 3, 75, 64})).sizes().vec(),
      (std::vector<int64_t>{2, 2, 75, 64}));
}

TEST_P(UnetTest, LearnsMasks) {
  torch::manual_seed(3);
  const torch::Tensor masks = torch::randint(2, {4, 32, 32}, torch::kLong);
  const torch::Tensor images = (200 * masks).unsqueeze(3).repeat({1, 1, 1, 3});
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{images.to(torch::kByte)},
      Tensors{masks});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.batch_transforms.push_back(normalize({0.5, 0.5, 0.5}, {0.3, 0.3, 0.3}));
  auto learn = unet_learner(
      data,
      GetParam().arch,
      {.outputs = 2,
       .learner = {
           .loss = torch::nn::CrossEntropyLoss(),
           .seed = 5,
           .sink = silent()}});
  EXPECT_EQ(parts_of(learn).groups.size(), 3);
  StateDict before;
  for (const ModelTensor& item : learn.model().parameters()) {
    before.insert(item.name, item.tensor.detach().clone());
  }
  learn.fit(1, 1e-2);  // two steps
  int64_t moved = 0;
  for (const ModelTensor& item : learn.model().parameters()) {
    EXPECT_TRUE(item.tensor.isfinite().all().item<bool>()) << item.name;
    moved += torch::equal(item.tensor, before[item.name]) ? 0 : 1;
  }
  EXPECT_EQ(learn.recorder().losses().size(), 2u);
  EXPECT_GT(moved, static_cast<int64_t>(before.size()) * 3 / 4);
}

TEST_P(MapsTest, SupportsGradCam) {
  auto learn = learner(GetParam(), 128);
  const GradCam cam =
      grad_cam(learn, torch::randint(256, {128, 128, 3}, torch::kByte));
  EXPECT_EQ(cam.heat.sizes().vec(), (std::vector<int64_t>{4, 4})) << cam.layer;
  EXPECT_TRUE(cam.layer.starts_with("body.")) << cam.layer;
}

TEST(GradCam, RejectsAViTWithoutFeatureMaps) {
  const std::vector<VisionArch> networks = {vit, timm_vit};
  for (const VisionArch& arch : networks) {
    auto learn = learner({"vit", arch, {}}, 128);
    expect_error<c10::ValueError>(
        [&] {
          grad_cam(learn, torch::randint(256, {128, 128, 3}, torch::kByte));
        },
        {"[grad_cam]", "A ViT has tokens and no feature maps", "swin_t"});
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    FamilyTest,
    testing::ValuesIn(families()),
    [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(
    All,
    MapsTest,
    testing::ValuesIn(families_with_maps()),
    [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(
    All,
    UnetTest,
    testing::ValuesIn(families_in_unets()),
    [](const auto& info) { return info.param.name; });

TEST(VisionArch, AcceptsNetworksByValueAndByName) {
  const std::vector<std::pair<VisionArch, const char*>> all = {
      {resnet152, "resnet152"},
      {resnext50_32x4d, "resnext50_32x4d"},
      {wide_resnet50_2, "wide_resnet50_2"},
      {densenet121, "densenet121"},
      {mobilenet_v3_small, "mobilenet_v3_small"},
      {mobilenet_v3_large, "mobilenet_v3_large"},
      {efficientnet_b0, "efficientnet_b0"},
      {efficientnet_b1, "efficientnet_b1"},
      {efficientnet_b2, "efficientnet_b2"},
      {efficientnet_b3, "efficientnet_b3"},
      {regnet_y_400mf, "regnet_y_400mf"},
      {regnet_y_8gf, "regnet_y_8gf"},
      {convnext_tiny, "convnext_tiny"},
      {convnext_small, "convnext_small"},
      {convnext_base, "convnext_base"},
      {vit_b_16, "vit_b_16"},
      {vit_b_32, "vit_b_32"},
      {vit_s_16, "vit_s_16"},
      {swin_t, "swin_t"}};
  for (const auto& [arch, name] : all) {
    EXPECT_EQ(arch.name(), name);
    EXPECT_EQ(VisionArch(name).second_group(), arch.second_group());
  }
}

TEST(VisionArch, ReadsOldTorchvisionNamesOfADenseNet) {
  const TempFolder temp;
  torch::manual_seed(1);
  StateDict old;
  for (const auto& item : Model(densenet({.num_classes = 5})).state_dict()) {
    std::string name = item.key();
    const size_t layer = name.find("denselayer");
    if (layer != std::string::npos) name.insert(name.find('.', layer) + 5, ".");
    old.insert(name, item.value());
  }
  ASSERT_TRUE(old.contains("features.denseblock1.denselayer1.norm.1.weight"));
  save_safetensors(temp / "old.safetensors", old);
  const VisionArch arch = densenet;
  const VisionBody body = arch.make_body(3);
  arch.load_pretrained(body, temp / "old.safetensors");
  EXPECT_TRUE(torch::equal(
      body.module
          ->named_parameters()["features.denseblock3.denselayer2.conv2.weight"],
      old["features.denseblock3.denselayer2.conv.2.weight"]));
}

double stddev(const torch::Tensor& weight) {
  return weight.std().item<double>();
}

TEST(Networks, InitializeWeightsLikeTorchvision) {
  torch::manual_seed(0);
  auto weights =
      ConvNeXt(ConvNeXtShape{{64, 64, 64, 64}, {1, 1, 1, 1}}, ConvNeXtOptions{})
          ->named_parameters();
  EXPECT_NEAR(stddev(weights["features.0.0.weight"]), 0.02, 1e-3);
  EXPECT_NEAR(stddev(weights["features.1.0.block.3.weight"]), 0.02, 1e-3);
  EXPECT_EQ(
      weights["features.1.0.block.3.bias"].count_nonzero().item<int>(),
      0);
  EXPECT_FLOAT_EQ(
      weights["features.7.0.layer_scale"].min().item<float>(),
      1e-6f);
  EXPECT_EQ(weights["classifier.0.weight"].sum().item<float>(), 64);
  weights = efficientnet({})->named_parameters();
  EXPECT_NEAR(
      stddev(weights["features.8.0.weight"]),
      std::sqrt(2.0 / 320),
      2e-3);
  EXPECT_EQ(
      weights["features.3.0.block.2.fc1.bias"].count_nonzero().item<int>(),
      0);
  const double bound = 1 / std::sqrt(1000.0);
  EXPECT_NEAR(weights["classifier.1.weight"].max().item<double>(), bound, 1e-4);
  EXPECT_NEAR(
      weights["classifier.1.weight"].min().item<double>(),
      -bound,
      1e-4);
  weights = mobilenet_v3_small()->named_parameters();
  EXPECT_NEAR(stddev(weights["classifier.0.weight"]), 0.01, 1e-4);
  EXPECT_EQ(weights["classifier.3.bias"].count_nonzero().item<int>(), 0);
  weights = regnet({})->named_parameters();
  EXPECT_NEAR(
      stddev(weights["trunk_output.block4.block4-0.f.b.0.weight"]),
      std::sqrt(2.0 / (48 * 9)),
      4e-3);
  EXPECT_NE(
      weights["trunk_output.block4.block4-0.f.se.fc1.bias"]
          .count_nonzero()
          .item<int>(),
      0);
  EXPECT_NEAR(stddev(weights["fc.weight"]), 0.01, 2e-4);
  weights = densenet({})->named_parameters();
  EXPECT_NEAR(
      stddev(weights["features.conv0.weight"]),
      std::sqrt(2.0 / (3 * 49)),
      1e-2);
  EXPECT_EQ(weights["classifier.bias"].count_nonzero().item<int>(), 0);
}

TEST(Networks, RejectInvalidArguments) {
  expect_error<c10::ValueError>(
      [] { convnext_tiny({.num_classes = -1}); },
      {"[ConvNeXt] num_classes is -1 and in_channels is 3"});
  expect_error<c10::ValueError>(
      [] { efficientnet_b2({.dropout = 1.0}); },
      {"[EfficientNet] dropout is 1 and stochastic_depth is 0.2"});
  expect_error<c10::ValueError>(
      [] { convnext_base({.stochastic_depth = NAN}); },
      {"[ConvNeXt]", "stochastic_depth is nan"});
  expect_error<c10::ValueError>(
      [] { mobilenet_v3_large({.in_channels = 0}); },
      {"[MobileNetV3]", "in_channels is 0"});
  expect_error<c10::ValueError>(
      [] {
        RegNet(RegNetShape{{8, 8, 8, 8}, {1, 0, 1, 1}}, RegNetOptions{});
      },
      {"[RegNet] blocks is {1, 0, 1, 1}; expected 4 numbers from 1 to 1000"});
  expect_error<c10::ValueError>(
      [] {
        RegNet(RegNetShape{{8, 8, 12, 8}, {1, 1, 1, 1}}, RegNetOptions{});
      },
      {"[RegNet] channels is 12 and group_width is 8"});
  expect_error<c10::ValueError>(
      [] {
        DenseNet(DenseNetShape{{1, 1, 1, 1}, 0}, DenseNetOptions{});
      },
      {"[DenseNet] growth is 0; expected 1 to 1000"});
  expect_error<c10::ValueError>(
      [] {
        ConvNeXt(ConvNeXtShape{{8, 8, -8, 8}, {1, 1, 1, 1}}, ConvNeXtOptions{});
      },
      {"[ConvNeXt] channels is {8, 8, -8, 8}; expected 4 numbers from 1 to "
       "10000"});
  expect_error<c10::ValueError>(
      [] { densenet121({.num_classes = 2'000'000'000}); },
      {"[DenseNet] num_classes is 2000000000", "0 to 1,000,000"});
}

TEST(Networks, RejectImagesThatAreTooSmall) {
  const torch::NoGradGuard no_grad;
  const auto refuses = [](Model net, int64_t least) {
    net.eval();
    const auto output = [&](int64_t side) {
      return net.forward({torch::rand({1, 3, side, 64})})[0];
    };
    EXPECT_TRUE(output(least).isfinite().all().item<bool>());
    expect_error<c10::ValueError>(
        [&] { output(least - 1); },
        {fmt::format("images are [1, 3, {}, 64]", least - 1),
         fmt::format("at least {} pixels", least),
         "Enlarge them"});
  };
  refuses(convnext({}), 32);
  refuses(densenet({}), 29);
  refuses(swin({}), 4);
}

TEST(StochasticDepth, DropsSamplesAndKeepsTheMean) {
  torch::manual_seed(0);
  const auto x = torch::ones({1000, 2, 3});
  struct : StochasticDepth {
    using StochasticDepth::dropped;
  } block;
  EXPECT_TRUE(block.dropped(x, /*is_training=*/true).is_same(x));
  block.stochastic_depth = 0.25;
  const torch::Tensor y = block.dropped(x, /*is_training=*/true);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.05);
  const torch::Tensor sums = y.sum({1, 2});
  EXPECT_TRUE(((sums == 0) | ((sums - 8).abs() < 1e-5)).all().item<bool>());
  EXPECT_TRUE(block.dropped(x, /*is_training=*/false).is_same(x));
}

}  // namespace
}  // namespace tern::networks_test
