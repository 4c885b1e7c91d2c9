// ViT and Swin, beyond what networks_test.cpp covers for all networks.
#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/transformers/attention.h"
#include "tern/vision/models/transformers/swin.h"
#include "tern/vision/models/transformers/vit.h"
#include "tern/vision/models/transformers/window_attention.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/vision_learner.h"

namespace tern::transformers_test {
namespace {

constexpr ViTShape kSmall{.patch = 8, .width = 16, .depth = 2, .heads = 2};

ViT small_vit(const ViTOptions& options) {
  return ViT(kSmall, options);
}

double stddev(const torch::Tensor& weight) {
  return weight.std().item<double>();
}

TEST(Attend, MatchesTheFormula) {
  torch::manual_seed(0);
  const auto qkv = torch::randn({3, 5, 24}, torch::kDouble);
  const auto bias = torch::randn({2, 5, 5}, torch::kDouble);
  const Tensors parts = qkv.chunk(3, -1);
  Tensors heads;
  for (int64_t i = 0; i < 2; ++i) {
    const auto of_head = [&](const torch::Tensor& x) {
      return x.narrow(-1, 4 * i, 4);
    };
    const torch::Tensor logits =
        of_head(parts[0]).matmul(of_head(parts[1]).transpose(1, 2)) / 2 +
        bias[i];
    heads.push_back(logits.softmax(-1).matmul(of_head(parts[2])));
  }
  EXPECT_TRUE(
      torch::allclose(attend(qkv, 2, bias), torch::cat(heads, -1), 0, 1e-12));
}

TEST(WindowAttention, KeepsWindowsApart) {
  torch::manual_seed(0);
  const torch::NoGradGuard no_grad;
  const auto changed_at = [](bool is_shifted) {
    WindowAttention layer(WindowAttentionOptions{
        .width = 4,
        .heads = 2,
        .window = 4,
        .is_shifted = is_shifted});
    auto x = torch::randn({1, 8, 8, 4});
    const torch::Tensor before = layer->forward(x);
    x[0][0][0] += 5;
    const torch::Tensor differs =
        ((layer->forward(x) - before).abs().amax(-1)[0] > 1e-6)
            .to(torch::kLong);
    return std::pair(differs, differs.sum().item<int64_t>());
  };
  const auto [plain, plain_cells] = changed_at(false);
  EXPECT_EQ(plain_cells, 16);
  EXPECT_EQ(plain.slice(0, 0, 4).slice(1, 0, 4).sum().item<int64_t>(), 16);
  // The corner that the shift leaves over is a separate window.
  const auto [shifted, shifted_cells] = changed_at(true);
  EXPECT_EQ(shifted_cells, 4);
  EXPECT_EQ(shifted.slice(0, 0, 2).slice(1, 0, 2).sum().item<int64_t>(), 4);
}

TEST(ViT, ReturnsTheClassTokenWithoutAClassifier) {
  const torch::NoGradGuard no_grad;
  ViT net = small_vit({.num_classes = 0, .in_channels = 4, .image_size = 32});
  net->eval();
  EXPECT_FALSE(net->has_maps());
  const auto x = torch::rand({2, 4, 32, 32});
  const torch::Tensor token = net->forward(x);
  EXPECT_EQ(token.sizes().vec(), (std::vector<int64_t>{2, 16}));
  EXPECT_TRUE(torch::equal(token, net->means(x)));
  for (const auto& item : net->named_parameters()) {
    EXPECT_FALSE(item.key().starts_with("heads.")) << item.key();
  }
}

TEST(ViT, AcceptsImagesOfOtherSizes) {
  const torch::NoGradGuard no_grad;
  ViT net = small_vit({.num_classes = 3, .image_size = 32});
  EXPECT_EQ(net->forward(torch::rand({2, 3, 64, 40})).size(1), 3);
  expect_error<c10::ValueError>(
      [&] {
        net->forward(torch::rand({2, 3, 64, 41}));
      },
      {"[2, 3, 64, 41]", "multiples of 8", "Resize or crop"});
}

TEST(ViT, GetsAHeadWithoutPoolingInAVisionModel) {
  const torch::NoGradGuard no_grad;
  VisionModel model(small_vit, 3, 5, HeadOptions{.hidden = {}});
  model->eval();
  const auto weights = model->named_parameters();
  EXPECT_EQ(weights["head.0.weight"].size(0), 16);
  EXPECT_EQ(
      weights["head.2.weight"].sizes().vec(),
      (std::vector<int64_t>{5, 16}));
  EXPECT_EQ(model->forward(torch::rand({2, 3, 64, 64})).size(1), 5);
  expect_error<c10::ValueError>(
      [] { DynamicUnet(small_vit, DynamicUnetOptions{.outputs = 2}); },
      {"has no feature maps", "swin_t"});
}

TEST(ViT, InitializesWeightsLikeTorchvisionAndTimm) {
  torch::manual_seed(0);
  const ViTShape shape{.patch = 16, .width = 192, .depth = 1, .heads = 3};
  auto weights = ViT(shape, ViTOptions{})->named_parameters();
  const auto of_block = [&](const std::string& name) {
    return weights["encoder.layers.encoder_layer_0." + name];
  };
  EXPECT_NEAR(stddev(weights["conv_proj.weight"]), 1 / std::sqrt(768.), 1e-3);
  EXPECT_NEAR(stddev(weights["encoder.pos_embedding"]), 0.02, 1e-3);
  EXPECT_EQ(weights["class_token"].count_nonzero().item<int>(), 0);
  EXPECT_EQ(weights["heads.head.weight"].count_nonzero().item<int>(), 0);
  EXPECT_NEAR(
      of_block("self_attention.in_proj_weight").max().item<double>(),
      std::sqrt(6. / (4 * 192)),
      1e-3);
  EXPECT_NEAR(
      of_block("self_attention.out_proj.weight").max().item<double>(),
      1 / std::sqrt(192.),
      1e-3);
  EXPECT_NEAR(
      of_block("mlp.0.weight").max().item<double>(),
      std::sqrt(6. / (5 * 192)),
      1e-3);
  EXPECT_NEAR(stddev(of_block("mlp.3.bias")), 1e-6, 2e-7);
  EXPECT_EQ(
      of_block("self_attention.in_proj_bias").count_nonzero().item<int>(),
      0);

  weights = TimmViT(shape, ViTOptions{})->named_parameters();
  for (const char* name : {"blocks.0.attn.qkv", "blocks.0.mlp.fc2", "head"}) {
    EXPECT_NEAR(stddev(weights[name + std::string(".weight")]), 0.02, 1e-3);
    EXPECT_EQ(
        weights[name + std::string(".bias")].count_nonzero().item<int>(),
        0);
  }
  EXPECT_NEAR(stddev(weights["cls_token"]), 1e-6, 2e-7);
  EXPECT_NEAR(
      weights["patch_embed.proj.weight"].max().item<double>(),
      1 / std::sqrt(768.),
      1e-3);
}

TEST(Swin, InitializesWeightsLikeTorchvision) {
  torch::manual_seed(0);
  const auto weights =
      Swin(SwinShape{64, {1, 1, 1, 1}, {2, 4, 8, 16}}, SwinOptions{})
          ->named_parameters();
  for (const char* name :
       {"features.1.0.attn.qkv",
        "features.3.0.mlp.0",
        "features.4.reduction",
        "head"}) {
    EXPECT_NEAR(stddev(weights[name + std::string(".weight")]), 0.02, 1e-3);
  }
  EXPECT_NEAR(
      stddev(weights["features.7.0.attn.relative_position_bias_table"]),
      0.02,
      1e-3);
  EXPECT_EQ(weights["head.bias"].count_nonzero().item<int>(), 0);
  EXPECT_NEAR(
      weights["features.0.0.weight"].max().item<double>(),
      1 / std::sqrt(48.),
      1e-3);
}

TEST(Transformers, UseDropoutOnlyInTraining) {
  const auto differ = [](Model model) {
    const auto x = torch::rand({16, 3, 32, 32});
    const auto again = [&] { return model.forward({x})[0]; };
    model.eval();
    EXPECT_TRUE(torch::equal(again(), again()));
    model.train();
    return !torch::equal(again(), again());
  };
  const SwinShape swin{8, {1, 1, 1, 1}, {1, 1, 1, 1}};
  const auto vit_of = [](ViTOptions options) {
    options.num_classes = 0;
    return small_vit(options);
  };
  EXPECT_FALSE(differ(vit_of({})));
  EXPECT_TRUE(differ(vit_of({.dropout = 0.5})));
  EXPECT_TRUE(differ(vit_of({.attention_dropout = 0.5})));
  EXPECT_TRUE(differ(vit_of({.stochastic_depth = 0.5})));
  EXPECT_FALSE(differ(Swin(swin, SwinOptions{.stochastic_depth = 0})));
  EXPECT_TRUE(differ(Swin(swin, SwinOptions{.stochastic_depth = 0.5})));
  EXPECT_TRUE(
      differ(Swin(swin, SwinOptions{.dropout = 0.5, .stochastic_depth = 0})));
  EXPECT_TRUE(differ(Swin(
      swin,
      SwinOptions{.attention_dropout = 0.5, .stochastic_depth = 0})));
}

TEST(ResizePositions, MatchesTimm) {
  // timm's resample_abs_pos_embed of arange(10).reshape(1, 10, 1) to 2 x 4.
  const auto positions = torch::arange(10, torch::kFloat).view({1, 10, 1});
  const torch::Tensor same = resize_positions(positions, 3, 3);
  EXPECT_TRUE(same.is_same(positions));
  const torch::Tensor other = resize_positions(positions, 2, 4);
  EXPECT_TRUE(torch::allclose(
      other.flatten(),
      torch::tensor(
          {0.000000f,
           1.877135f,
           2.485968f,
           3.372778f,
           3.981612f,
           6.018387f,
           6.627221f,
           7.514031f,
           8.122865f}),
      0,
      1e-5))
      << other;
  EXPECT_EQ(
      resize_positions(positions.to(torch::kHalf), 2, 4).scalar_type(),
      torch::kHalf);
  expect_error<c10::ValueError>(
      [&] { resize_positions(positions.slice(1, 1), 2, 2); },
      {"[1, 9, 1]", "n rows of n patches"});
}

TEST(Transformers, RejectInvalidArguments) {
  expect_error<c10::ValueError>(
      [] { vit_b_16({.num_classes = -1}); },
      {"[ViT] num_classes is -1 and in_channels is 3"});
  expect_error<c10::ValueError>(
      [] { vit_s_16({.image_size = 100}); },
      {"[ViT] image_size is 100", "16, 384, 12, 6"});
  expect_error<c10::ValueError>(
      [] { vit_b_32({.attention_dropout = 1.5}); },
      {"dropout is 1.5"});
  expect_error<c10::ValueError>(
      [] { swin_t({.stochastic_depth = 1}); },
      {"[Swin]", "stochastic_depth is 1"});
  expect_error<c10::ValueError>(
      [] {
        Swin(SwinShape{96, {2, 2, 6, 2}, {5, 6, 12, 24}}, SwinOptions{});
      },
      {"[Swin] the width is 96 and heads is {5, 6, 12, 24}"});
}

}  // namespace
}  // namespace tern::transformers_test
