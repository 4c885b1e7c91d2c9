#pragma once

#include <functional>
#include <vector>

#include <torch/nn/modules/batchnorm.h>

#include "tern/tests/support/stir.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/vision_learner.h"

namespace tern::testing_support {

inline constexpr int64_t kClasses = 5;

struct SmallNet {
  const char* name;
  std::function<Model()> make;
  int64_t side = 64;
  // OpenCV 4.6 lacks Clip and LayerNormalization, and supports the
  // multiplication by squeeze-and-excitation gates at one size only.
  enum { any_batch, fixed_batch, decomposed, none } opencv = any_batch;
};

inline ResNet small_resnet(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 1, 1, 1}}, options);
}

// A small network of each family, with all features of the larger ones.
inline std::vector<SmallNet> classifiers() {
  const auto resnet = [](const ResNetShape& shape) {
    return [shape] { return ResNet(shape, ResNetOptions{kClasses}); };
  };
  const ViTShape vit{.patch = 8, .width = 32, .depth = 2, .heads = 2};
  return {
      {"simple_cnn",
       [] {
         return simple_cnn({3, 8, 16, kClasses}, {.batch_norm = true});
       }},
      {"resnet18", resnet({{1, 1, 1, 1}})},
      {"resnet50", resnet({{1, 1, 1, 1}, true})},
      {"resnext50_32x4d", resnet({{1, 1, 1, 1}, true, 32, 4})},
      {"wide_resnet50_2", resnet({{1, 1, 1, 1}, true, 1, 96})},
      {"xresnet18",
       [] {
         return XResNet(ResNetShape{{1, 1, 1, 1}}, XResNetOptions{kClasses});
       }},
      {"mobilenet_v2",
       [] { return mobilenet_v2({kClasses}); },
       64,
       SmallNet::none},
      {"mobilenet_v3_small",
       [] { return mobilenet_v3_small({kClasses}); },
       64,
       SmallNet::fixed_batch},
      {"densenet",
       [] {
         return DenseNet(
             DenseNetShape{{2, 1, 2, 1}, 8},
             DenseNetOptions{kClasses});
       }},
      {"regnet",
       [] {
         return RegNet(
             RegNetShape{{16, 24, 32, 48}, {1, 1, 2, 1}, 8},
             RegNetOptions{kClasses});
       },
       64,
       SmallNet::fixed_batch},
      {"efficientnet",
       [] {
         return EfficientNet(
             EfficientNetShape{0.25, 0.3, 0.2},
             EfficientNetOptions{kClasses});
       },
       64,
       SmallNet::fixed_batch},
      {"convnext",
       [] {
         return ConvNeXt(
             ConvNeXtShape{{8, 16, 24, 32}, {1, 1, 2, 1}, 0.1},
             ConvNeXtOptions{kClasses});
       },
       64,
       SmallNet::decomposed},
      {"vit",
       [vit] {
         return ViT(vit, ViTOptions{kClasses, 3, /*image_size=*/32});
       },
       64,
       SmallNet::decomposed},
      {"timm_vit",
       [vit] {
         return TimmViT(vit, ViTOptions{kClasses, 3, /*image_size=*/64});
       },
       64,
       SmallNet::decomposed},
      // Windows at an edge, shifted windows, and padding.
      {"swin",
       [] {
         return Swin(
             SwinShape{16, {1, 2, 2, 1}, {1, 2, 2, 4}},
             SwinOptions{kClasses});
       },
       72,
       SmallNet::decomposed},
      {"vision_model",
       [] { return VisionModel(VisionArch(small_resnet), 3, kClasses); }}};
}

/// Updates the running statistics with `inputs`, so that no layer's output
/// vanishes.
inline void prepare(Model model, const Tensors& inputs) {
  const torch::NoGradGuard no_grad;
  stir(model);
  for (const auto& module : model.module()->modules()) {
    if (auto* norm = module->as<torch::nn::BatchNorm2d>()) {
      norm->options.momentum(1.0);
    }
  }
  model.train();
  model.forward(inputs);
  model.eval();
}

}  // namespace tern::testing_support
