#include "tern/vision/models/vision_arch.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/kernels/check.h"
#include "tern/vision/models/backbone.h"
#include "tern/vision/models/pretrained.h"

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
      "positive widths and a share in [0, 1).",
      fmt::join(widths, ", "),
      options.dropout);
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
  return head;
}

namespace {

// A network's function by name; its type is known to `arch` alone.
struct KnownNetwork {
  std::string name;
  void (*make)();
  VisionArch (*arch)();
};

template <auto make>
KnownNetwork known_as(const char* name) {
  return {name, reinterpret_cast<void (*)()>(make), [] {
            return VisionArch(make);
          }};
}

const std::vector<KnownNetwork>& known() {
  static const std::vector<KnownNetwork> all = {
      known_as<resnet18>("resnet18"),
      known_as<resnet34>("resnet34"),
      known_as<resnet50>("resnet50"),
      known_as<resnet101>("resnet101"),
      known_as<resnet152>("resnet152"),
      known_as<resnext50_32x4d>("resnext50_32x4d"),
      known_as<wide_resnet50_2>("wide_resnet50_2"),
      known_as<xresnet18>("xresnet18"),
      known_as<xresnet34>("xresnet34"),
      known_as<xresnet50>("xresnet50"),
      known_as<densenet121>("densenet121"),
      known_as<mobilenet_v2>("mobilenet_v2"),
      known_as<mobilenet_v3_small>("mobilenet_v3_small"),
      known_as<mobilenet_v3_large>("mobilenet_v3_large"),
      known_as<efficientnet_b0>("efficientnet_b0"),
      known_as<efficientnet_b1>("efficientnet_b1"),
      known_as<efficientnet_b2>("efficientnet_b2"),
      known_as<efficientnet_b3>("efficientnet_b3"),
      known_as<regnet_y_400mf>("regnet_y_400mf"),
      known_as<regnet_y_8gf>("regnet_y_8gf"),
      known_as<convnext_tiny>("convnext_tiny"),
      known_as<convnext_small>("convnext_small"),
      known_as<convnext_base>("convnext_base"),
      known_as<vit_b_16>("vit_b_16"),
      known_as<vit_b_32>("vit_b_32"),
      known_as<vit_s_16>("vit_s_16"),
      known_as<swin_t>("swin_t")};
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
  return "a network of your own";
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
  return published_ ? *published_ : published_weights(name_);
}

}  // namespace tern
