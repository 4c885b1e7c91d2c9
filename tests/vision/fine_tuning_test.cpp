#include "tern/vision/fine_tuning.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tern/callbacks/diagnose/plan.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/vision_learner.h"

namespace tern::fine_tuning_test {
namespace {

DataBunch noise(int64_t size) {
  torch::manual_seed(3);
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({4, 3, size, size})},
      Tensors{torch::arange(4) % 2});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"left", "right"};
  return data;
}

ViT vit(const ViTOptions& options) {
  return ViT(
      ViTShape{.patch = 8, .width = 16, .depth = 7, .heads = 2},
      options);
}
ConvNeXt convnext(const ConvNeXtOptions& options) {
  return ConvNeXt(ConvNeXtShape{{8, 8, 8, 8}, {1, 1, 2, 1}, 0}, options);
}

Swin swin(const SwinOptions& options) {
  return Swin(SwinShape{16, {1, 1, 2, 1}, {1, 2, 2, 4}}, options);
}
Learner learner(const VisionArch& arch) {
  return vision_learner(
      noise(32),
      arch,
      {.head = {.hidden = {}}, .learner = {.sink = silent()}});
}

std::vector<std::string> firsts(Learner& learn) {
  std::vector<std::string> names;
  for (const auto& group : parts_of(learn).groups.parameters) {
    names.push_back(group.front().name);
  }
  return names;
}

TEST(LayerDecay, CreatesAGroupForEachBlock) {
  Learner learn = learner(convnext);
  layer_decay(learn, 1e-3);
  EXPECT_EQ(
      firsts(learn),
      (std::vector<std::string>{
          "body.features.0.0.weight",
          "body.features.1.0.layer_scale",
          "body.features.2.0.weight",
          "body.features.4.0.weight",
          "body.features.5.1.layer_scale",
          "body.features.6.0.weight",
          "head.2.weight"}));
  Learner swin_learner = learner(swin);
  layer_decay(swin_learner, 1e-3);
  EXPECT_EQ(
      firsts(swin_learner),
      (std::vector<std::string>{
          "body.features.0.0.weight",
          "body.features.1.0.norm1.weight",
          "body.features.2.reduction.weight",
          "body.features.4.reduction.weight",
          "body.features.5.1.norm1.weight",
          "body.features.6.reduction.weight",
          "head.2.weight"}));
}

// The numbers are from timm 1.0's group_matcher. For densenet121 it is the
// coarse matcher, which groups by stages for the other networks.
TEST(LayerDecay, CreatesAsManyGroupsAsTimm) {
  const std::vector<std::pair<const char*, size_t>> groups = {
      {"resnet18", 10},
      {"convnext_tiny", 20},
      {"efficientnet_b0", 18},
      {"mobilenet_v3_small", 14},
      {"regnet_y_400mf", 18},
      {"densenet121", 6},
      {"swin_t", 14},
      {"vit_s_16", 14},
      {"xresnet18", 10}};  // as resnet18; not in timm
  for (const auto& [name, count] : groups) {
    Learner learn = learner(name);
    layer_decay(learn, 1e-3);
    EXPECT_EQ(parts_of(learn).groups.size(), count) << name;
  }
}

TEST(LayerDecay, EarlierLayersGetLowerLearningRates) {
  Learner learn = learner(vit);
  const LearningRates rates = layer_decay(learn, 1e-3, 0.5);
  learn.fit(1, rates);
  const std::vector<double> now = learn.learning_rates();
  ASSERT_EQ(now.size(), 9u);  // patch embedding, seven blocks, head
  for (size_t i = 0; i < now.size(); ++i) {
    EXPECT_DOUBLE_EQ(now[i], 1e-3 * std::pow(0.5, 8. - static_cast<double>(i)));
  }
  // Other learning rates for these groups also work after a fit.
  learn.fit(1, layer_decay(learn, 1e-2, 1));
  EXPECT_DOUBLE_EQ(learn.learning_rates().front(), 1e-2);
}

TEST(LayerDecay, KeepsFrozenLayersFrozen) {
  Learner learn = learner(convnext);
  learn.freeze();
  layer_decay(learn, 1e-3);
  for (const ModelTensor& item : learn.model().parameters()) {
    if (item.layer != LayerKind::other) continue;  // BatchNorm keeps training
    EXPECT_EQ(item.tensor.requires_grad(), item.name.starts_with("head."));
  }
}

TEST(LayerDecay, RejectsUnusableArguments) {
  Learner learn = learner(convnext);
  expect_error<c10::ValueError>(
      [&] { layer_decay(learn, 1e-3, 1.5); },
      {"[layer_decay] lr is 0.001 and decay is 1.5"});
  learn.fit(1);
  expect_error<c10::ValueError>(
      [&] { layer_decay(learn, 1e-3); },
      {"[Learner::split] the optimizer exists already"});
  Learner other(noise(32), torch::nn::Linear(2, 2));
  expect_error<c10::ValueError>(
      [&] { layer_decay(other, 1e-3); },
      {"[layer_decay] the model has no Backbone", "Learner::split"});
}

std::vector<double> shares(Learner& learn) {
  std::vector<double> all;
  for (const auto& module : learn.model().module()->modules()) {
    if (const auto* block = dynamic_cast<StochasticDepth*>(module.get())) {
      all.push_back(block->stochastic_depth);
    }
  }
  return all;
}

TEST(StochasticDepth, IncreasesFromBlockToBlock) {
  for (const VisionArch& arch : {VisionArch(vit), VisionArch(convnext)}) {
    Learner learn = learner(arch);
    const size_t blocks = shares(learn).size();
    EXPECT_EQ(shares(learn), std::vector<double>(blocks, 0));
    set_stochastic_depth(learn, 0.3);
    const std::vector<double> now = shares(learn);
    for (size_t i = 0; i < blocks; ++i) {
      const double steps = static_cast<double>(blocks) - 1;
      EXPECT_DOUBLE_EQ(now[i], 0.3 * static_cast<double>(i) / steps);
    }
  }
}

TEST(StochasticDepth, IsActiveOnlyInTraining) {
  Learner learn = learner(vit);
  for (const ModelTensor& item : learn.model().parameters()) {
    const torch::NoGradGuard no_grad;
    item.tensor.detach().normal_(0, 0.1);
  }
  const torch::nn::AnyModule body(std::dynamic_pointer_cast<ViTImpl>(
      learn.model().module()->children()[0]));
  const auto x = torch::rand({8, 3, 32, 32});
  const auto output = [&] { return body.ptr<ViTImpl>()->forward(x).detach(); };
  body.ptr()->train();
  const torch::Tensor all = output();
  set_stochastic_depth(learn, 0.9);
  EXPECT_FALSE(torch::allclose(output(), all));
  body.ptr()->eval();
  EXPECT_TRUE(torch::allclose(output(), all));
}

TEST(StochasticDepth, RejectsUnsupportedNetworksAndInvalidValues) {
  Learner learn = learner(resnet18);
  expect_error<c10::ValueError>(
      [&] { set_stochastic_depth(learn, 0.1); },
      {"[set_stochastic_depth] the network has no blocks to drop",
       "such as a ConvNeXt"});
  Learner other = learner(vit);
  expect_error<c10::ValueError>(
      [&] { set_stochastic_depth(other, 1); },
      {"[set_stochastic_depth] the last of 7 blocks", "probability 1;"});
}

// ---- LoRA ----

TEST(AddLora, AdaptsTheAttentionOfAViTWithTorchvisionOrTimmNames) {
  const auto adapted = [](const Model& model, const char* target) {
    std::vector<std::string> names;
    for (const ModelTensor& item :
         add_lora(model, {.targets = {target}}).state()) {
      if (item.name.find("_A") != std::string::npos) names.push_back(item.name);
    }
    return names;
  };
  const ViTShape one{.patch = 8, .width = 16, .depth = 1, .heads = 2};
  EXPECT_EQ(
      adapted(ViT(one, ViTOptions{}), "self_attention"),
      (std::vector<std::string>{
          "encoder.layers.encoder_layer_0.self_attention.lora_A.weight",
          "encoder.layers.encoder_layer_0.self_attention.out_proj.lora_A."
          "weight"}));
  EXPECT_EQ(
      adapted(TimmViT(one, ViTOptions{}), "attn.qkv"),
      (std::vector<std::string>{"blocks.0.attn.qkv.lora_A.weight"}));
}

TEST(AddLora, MatchesPeftInAViTAndIsMergedOnExport) {
  const TempFolder temp;
  Learner learn = learner(vit);
  add_lora(learn, {.rank = 2, .alpha = 8, .targets = {"self_attention"}});
  const std::string layer =
      "body.encoder.layers.encoder_layer_3.self_attention.";
  const StateDict base = Model(learn.model().module()).state_dict();
  const torch::Tensor before = base[layer + "in_proj_weight"].clone();
  torch::Tensor expected;
  {
    const torch::NoGradGuard no_grad;
    for (const ModelTensor& item : learn.model().parameters()) {
      item.tensor.detach().normal_(0, 0.1);
    }
    const StateDict adapters = learn.model().state_dict();
    expected = before + 4 * adapters[layer + "lora_B.weight"].mm(
                                adapters[layer + "lora_A.weight"]);
  }
  learn.model().eval();
  const auto x = torch::rand({4, 3, 32, 32});
  const torch::Tensor output = learn.model().forward({x})[0].detach();
  learn.export_model(temp / "net.safetensors");
  Model exported =
      load_exported(temp / "net.safetensors", /*trusted=*/true).first;
  EXPECT_TRUE(torch::allclose(exported.forward({x})[0], output, 1e-4, 1e-5));
  EXPECT_TRUE(torch::equal(base[layer + "in_proj_weight"], before));
  const StateDict merged = merge_lora(learn.model()).state_dict();
  EXPECT_LE(
      (merged[layer + "in_proj_weight"] - expected).abs().max().item<double>(),
      1e-6 * expected.abs().max().item<double>());
}

// Returns the bytes of master weights, gradients and moments.
int64_t optimizer_bytes(Learner& learn) {
  const TrainingPlan plan = learn.to_bf16().plan({.batches = 1});
  int64_t bytes = plan.optimizer_bytes + plan.gradient_bytes;
  for (const torch::Tensor& master : master_weights(learn)->masters()) {
    bytes += static_cast<int64_t>(master.nbytes());
  }
  return bytes;
}

TEST(AddLora, ReducesOptimizerMemoryToATwentieth) {
  const auto whole = [] {
    return vision_learner(
        noise(32),
        "vit_s_16",
        {.learner = {.sink = silent()}});
  };
  Learner full = whole(), adapted = whole();
  add_lora(adapted, {.rank = 8, .targets = {"attn.qkv", "attn.proj"}});
  const int64_t all = optimizer_bytes(full);
  EXPECT_GT(all, 14 * 20'000'000);  // 4 + 2 + 8 bytes per weight
  EXPECT_LE(20 * optimizer_bytes(adapted), all);
}

}  // namespace
}  // namespace tern::fine_tuning_test
