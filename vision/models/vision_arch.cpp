#include "tern/vision/models/vision_arch.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"
#include "tern/vision/models/backbone.h"

namespace tern {

torch::Tensor ConcatPoolImpl::forward(const torch::Tensor& x) {
  const torch::Tensor largest =
      std::get<0>(torch::adaptive_max_pool2d(x, {1, 1}));
  return torch::cat({largest, torch::adaptive_avg_pool2d(x, {1, 1})}, 1);
}

torch::nn::Sequential
classifier_head(int64_t features, int64_t outputs, const HeadOptions& options) {
  const bool is_doubled = options.pool && options.concat_pool;
  std::vector<int64_t> widths = {is_doubled ? 2 * features : features};
  widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
  widths.push_back(outputs);
  TERN_CHECK_VALUE(
      std::ranges::min(widths) > 0 && options.dropout >= 0 &&
          options.dropout < 1,
      "[classifier_head] the widths are {{{}}} and dropout is {}; expected "
      "positive widths and a probability in [0, 1).",
      fmt::join(widths, ", "),
      options.dropout);
  const std::vector<double>& range = options.y_range;
  TERN_CHECK_VALUE(
      range.empty() || (range.size() == 2 && range[0] < range[1] &&
                        std::isfinite(range[1] - range[0])),
      "[classifier_head] y_range is {{{}}}; expected the lowest and the "
      "highest prediction, or nothing.",
      fmt::join(range, ", "));
  torch::nn::Sequential head;
  if (is_doubled) {
    head->push_back(ConcatPool());
  } else if (options.pool) {
    head->push_back(torch::nn::AdaptiveAvgPool2d(1));
  }
  if (options.pool) head->push_back(torch::nn::Flatten());
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool is_last = i + 2 == widths.size();
    torch::nn::BatchNorm1d norm(widths[i]);
    torch::nn::init::constant_(norm->bias, 1e-3);
    head->push_back(norm);
    if (options.dropout > 0) {
      head->push_back(
          torch::nn::Dropout(is_last ? options.dropout : options.dropout / 2));
    }
    head->push_back(torch::nn::Linear(
        torch::nn::LinearOptions(widths[i], widths[i + 1]).bias(false)));
    if (!is_last) {
      head->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    }
  }
  init_kaiming(*head);
  if (!range.empty()) head->push_back(SigmoidRange(range[0], range[1]));
  return head;
}

namespace {

// A network function with its name. Only `arch` has the function's type.
struct KnownNetwork {
  std::string name;
  void (*make)();
  VisionArch (*arch)();
  Model (*build)(const Architecture&);
  std::string weights;  // URL of pretrained weights, or empty
};

template <class Net, class Options>
Model build(Net (*make)(const Options&), const Architecture& architecture) {
  Options options;
  read_json(
      architecture.options,
      fields_of(options),
      "the options of " + architecture.name);
  return make(options);
}

// \param weights  File name of torchvision's DEFAULT weights, or a URL.
template <auto make>
KnownNetwork known_as(const char* name, std::string weights = {}) {
  if (!weights.empty() && !weights.starts_with("https:")) {
    weights.insert(0, "https://download.pytorch.org/models/");
  }
  const auto arch = [] { return VisionArch(make); };
  const auto built = [](const Architecture& a) { return build(make, a); };
  return {name, reinterpret_cast<void (*)()>(make), arch, built, weights};
}

const std::vector<KnownNetwork>& known() {
  static const std::vector<KnownNetwork> all = {
      known_as<resnet18>("resnet18", "resnet18-f37072fd.pth"),
      known_as<resnet34>("resnet34", "resnet34-b627a593.pth"),
      known_as<resnet50>("resnet50", "resnet50-11ad3fa6.pth"),
      known_as<resnet101>("resnet101", "resnet101-cd907fc2.pth"),
      known_as<resnet152>("resnet152", "resnet152-f82ba261.pth"),
      known_as<resnext50_32x4d>(
          "resnext50_32x4d",
          "resnext50_32x4d-1a0047aa.pth"),
      known_as<wide_resnet50_2>(
          "wide_resnet50_2",
          "wide_resnet50_2-9ba9bcbe.pth"),
      known_as<xresnet18>("xresnet18"),
      known_as<xresnet34>("xresnet34"),
      known_as<xresnet50>("xresnet50"),
      known_as<densenet121>("densenet121", "densenet121-a639ec97.pth"),
      known_as<mobilenet_v2>("mobilenet_v2", "mobilenet_v2-7ebf99e0.pth"),
      known_as<mobilenet_v3_small>(
          "mobilenet_v3_small",
          "mobilenet_v3_small-047dcff4.pth"),
      known_as<mobilenet_v3_large>(
          "mobilenet_v3_large",
          "mobilenet_v3_large-5c1a4163.pth"),
      known_as<efficientnet_b0>(
          "efficientnet_b0",
          "efficientnet_b0_rwightman-7f5810bc.pth"),
      known_as<efficientnet_b1>(
          "efficientnet_b1",
          "efficientnet_b1-c27df63c.pth"),
      known_as<efficientnet_b2>(
          "efficientnet_b2",
          "efficientnet_b2_rwightman-c35c1473.pth"),
      known_as<efficientnet_b3>(
          "efficientnet_b3",
          "efficientnet_b3_rwightman-b3899882.pth"),
      known_as<regnet_y_400mf>("regnet_y_400mf", "regnet_y_400mf-e6988f5f.pth"),
      known_as<regnet_y_8gf>("regnet_y_8gf", "regnet_y_8gf-dc2b1b54.pth"),
      known_as<convnext_tiny>("convnext_tiny", "convnext_tiny-983f1562.pth"),
      known_as<convnext_small>("convnext_small", "convnext_small-0c510722.pth"),
      known_as<convnext_base>("convnext_base", "convnext_base-6075fbad.pth"),
      known_as<vit_b_16>("vit_b_16", "vit_b_16-c867db91.pth"),
      known_as<vit_b_32>("vit_b_32", "vit_b_32-d86f8d99.pth"),
      // DeiT-S (Touvron et al., "Training data-efficient image transformers",
      // 2021), trained on ImageNet with its usual normalization.
      known_as<vit_s_16>(
          "vit_s_16",
          "https://dl.fbaipublicfiles.com/deit/"
          "deit_small_patch16_224-cd65a155.pth"),
      known_as<swin_t>("swin_t", "swin_t-704ceda3.pth")};
  return all;
}

VisionArch named(const std::string& name) {
  const auto& all = known();
  const auto at = std::ranges::find(all, name, &KnownNetwork::name);
  TERN_CHECK_VALUE(
      at != all.end(),
      "[VisionArch] there is no network \"{}\"; expected one of {}.",
      name,
      fmt::join(std::views::transform(all, &KnownNetwork::name), ", "));
  return at->arch();
}

}  // namespace

bool VisionArch::is_known() const {
  return std::ranges::count(known(), name_, &KnownNetwork::name) == 1;
}

std::string VisionArch::name_of(Function make) {
  for (const KnownNetwork& network : known()) {
    if (network.make == make) return network.name;
  }
  return "your own network";
}

VisionArch::VisionArch(const std::string& name) : VisionArch(named(name)) {}

VisionArch::VisionArch(
    std::string name,
    MakeBody make_body,
    std::string second_group,
    std::string classifier,
    std::optional<PublishedWeights> published)
    : name_(std::move(name)),
      make_body_(std::move(make_body)),
      second_group_(std::move(second_group)),
      classifier_(std::move(classifier)),
      published_(std::move(published)) {}

PublishedWeights VisionArch::published() const {
  if (published_) return *published_;
  const auto at = std::ranges::find(known(), name_, &KnownNetwork::name);
  TERN_CHECK_VALUE(
      at != known().end() && !at->weights.empty(),
      "[VisionArch] there are no pretrained weights for {}; expected one of "
      "{}. Give a file, {{.pretrained = \"weights.pth\"}}, or use one of these "
      "networks.",
      name_,
      fmt::join(networks_with_weights(), ", "));
  return {at->weights};
}

std::map<std::string, std::function<Model(const Architecture&)>>
network_builders() {
  std::map<std::string, std::function<Model(const Architecture&)>> builders;
  for (const KnownNetwork& network : known()) {
    builders.emplace(network.name, network.build);
  }
  return builders;
}

std::vector<std::string> networks_with_weights() {
  std::vector<std::string> names;
  for (const KnownNetwork& network : known()) {
    if (!network.weights.empty()) names.push_back(network.name);
  }
  return names;
}

}  // namespace tern
