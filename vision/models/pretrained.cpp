#include "tern/vision/models/pretrained.h"

#include <algorithm>
#include <array>

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr const char* kTorchvision = "https://download.pytorch.org/models/";

struct KnownWeights {
  const char *network, *file;
  const char* address = kTorchvision;
};

// The files of torchvision's DEFAULT weights.
constexpr std::array kWeights = {
    KnownWeights{"resnet18", "resnet18-f37072fd.pth"},
    KnownWeights{"resnet34", "resnet34-b627a593.pth"},
    KnownWeights{"resnet50", "resnet50-11ad3fa6.pth"},
    KnownWeights{"resnet101", "resnet101-cd907fc2.pth"},
    KnownWeights{"resnet152", "resnet152-f82ba261.pth"},
    KnownWeights{"resnext50_32x4d", "resnext50_32x4d-1a0047aa.pth"},
    KnownWeights{"wide_resnet50_2", "wide_resnet50_2-9ba9bcbe.pth"},
    KnownWeights{"densenet121", "densenet121-a639ec97.pth"},
    KnownWeights{"mobilenet_v2", "mobilenet_v2-7ebf99e0.pth"},
    KnownWeights{"mobilenet_v3_small", "mobilenet_v3_small-047dcff4.pth"},
    KnownWeights{"mobilenet_v3_large", "mobilenet_v3_large-5c1a4163.pth"},
    KnownWeights{"efficientnet_b0", "efficientnet_b0_rwightman-7f5810bc.pth"},
    KnownWeights{"efficientnet_b1", "efficientnet_b1-c27df63c.pth"},
    KnownWeights{"efficientnet_b2", "efficientnet_b2_rwightman-c35c1473.pth"},
    KnownWeights{"efficientnet_b3", "efficientnet_b3_rwightman-b3899882.pth"},
    KnownWeights{"regnet_y_400mf", "regnet_y_400mf-e6988f5f.pth"},
    KnownWeights{"regnet_y_8gf", "regnet_y_8gf-dc2b1b54.pth"},
    KnownWeights{"convnext_tiny", "convnext_tiny-983f1562.pth"},
    KnownWeights{"convnext_small", "convnext_small-0c510722.pth"},
    KnownWeights{"convnext_base", "convnext_base-6075fbad.pth"},
    KnownWeights{"vit_b_16", "vit_b_16-c867db91.pth"},
    KnownWeights{"vit_b_32", "vit_b_32-d86f8d99.pth"},
    // Touvron et al., "Training data-efficient image transformers" (2021),
    // which learnt from ImageNet with its usual normalisation.
    KnownWeights{
        "vit_s_16",
        "deit_small_patch16_224-cd65a155.pth",
        "https://dl.fbaipublicfiles.com/deit/"},
    KnownWeights{"swin_t", "swin_t-704ceda3.pth"}};

}  // namespace

PublishedWeights published_weights(const std::string& network) {
  const auto found = std::find_if(
      kWeights.begin(),
      kWeights.end(),
      [&](const KnownWeights& weights) { return weights.network == network; });
  TERN_CHECK_VALUE(
      found != kWeights.end(),
      "[published_weights] no published weights are known for \"{}\", but "
      "for {}. Give a file, {{.pretrained = \"weights.pth\"}}, or take one "
      "of these networks.",
      network,
      fmt::join(networks_with_weights(), ", "));
  return {std::string(found->address) + found->file};
}

std::vector<std::string> networks_with_weights() {
  std::vector<std::string> names;
  for (const KnownWeights& weights : kWeights) {
    names.emplace_back(weights.network);
  }
  return names;
}

}  // namespace tern
