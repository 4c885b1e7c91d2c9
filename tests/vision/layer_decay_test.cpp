#include "tern/vision/layer_decay.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/tests/support/expect_error.h"
#include "tern/vision/vision_learner.h"

namespace tern::layer_decay_test {
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

Learner learner(const VisionArch& arch) {
  return vision_learner(
      noise(32),
      arch,
      {.head = {.hidden = {}}, .learner = {.sink = silent()}});
}

std::vector<std::string> firsts(Learner& learn) {
  std::vector<std::string> names;
  for (const auto& group : learn.parts().groups) {
    names.push_back(group.front().name);
  }
  return names;
}

TEST(LayerDecay, MakesAGroupOfEachBlock) {
  Learner learn = learner(convnext);
  layer_decay(learn, 1e-3);
  EXPECT_EQ(
      firsts(learn),
      (std::vector<std::string>{
          "body.features.0.0.weight",
          "body.features.1.0.layer_scale",
          "body.features.3.0.layer_scale",
          "body.features.5.0.layer_scale",
          "body.features.5.1.layer_scale",
          "body.features.7.0.layer_scale",
          "head.2.weight"}));
  Learner residual = learner(resnet18);
  layer_decay(residual, 1e-3);
  const std::vector<std::string> names = firsts(residual);
  ASSERT_EQ(names.size(), 10u);  // a stem, eight blocks, a head
  EXPECT_EQ(names[0], "body.conv1.weight");
  EXPECT_EQ(names[1], "body.layer1.0.conv1.weight");
  EXPECT_EQ(names[8], "body.layer4.1.conv1.weight");
}

TEST(LayerDecay, LetsEarlierLayersLearnMoreSlowly) {
  Learner learn = learner(vit);
  const LearningRates rates = layer_decay(learn, 1e-3, 0.5);
  learn.fit(1, rates);
  const std::vector<double> now = learn.learning_rates();
  ASSERT_EQ(now.size(), 9u);  // patches, seven blocks, a head
  for (size_t i = 0; i < now.size(); ++i) {
    EXPECT_DOUBLE_EQ(now[i], 1e-3 * std::pow(0.5, 8. - static_cast<double>(i)));
  }
  // Other rates for these groups, after a fit too.
  learn.fit(1, layer_decay(learn, 1e-2, 1));
  EXPECT_DOUBLE_EQ(learn.learning_rates().front(), 1e-2);
}

TEST(LayerDecay, LeavesFrozenWhatIs) {
  Learner learn = learner(convnext);
  learn.freeze();
  layer_decay(learn, 1e-3);
  for (const ModelTensor& item : learn.model().parameters()) {
    if (item.layer != LayerKind::other) continue;  // norms go on learning
    EXPECT_EQ(item.tensor.requires_grad(), item.name.starts_with("head."));
  }
}

TEST(LayerDecay, SaysWhatItNeeds) {
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
      {"[layer_decay] the model holds no Backbone", "Learner::split"});
}

}  // namespace
}  // namespace tern::layer_decay_test
