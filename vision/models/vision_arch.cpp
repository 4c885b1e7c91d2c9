#include "tern/vision/models/vision_arch.h"

#include <algorithm>
#include <ranges>
#include <regex>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/kernels/check.h"
#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/models/backbone.h"

namespace tern {

torch::Tensor ConcatPoolImpl::forward(const torch::Tensor& x) {
  const torch::Tensor largest =
      std::get<0>(torch::adaptive_max_pool2d(x, {1, 1}));
  return torch::cat({largest, torch::adaptive_avg_pool2d(x, {1, 1})}, 1);
}

torch::nn::Sequential
classifier_head(int64_t features, int64_t outputs, const HeadOptions& options) {
  std::vector<int64_t> widths = {options.concat_pool ? 2 * features : features};
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
  if (options.concat_pool) {
    head->push_back(ConcatPool());
  } else {
    head->push_back(torch::nn::AdaptiveAvgPool2d(1));
  }
  head->push_back(torch::nn::Flatten());
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
      known_as<convnext_base>("convnext_base")};
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

// What a vision learner calls its parts.
constexpr const char* kBody = "body.";

// torchvision's file of a DenseNet has names from before PyTorch 0.4, such as
// "denselayer1.norm.1.weight" for "denselayer1.norm1.weight".
std::string today(const std::string& name) {
  static const std::regex old(R"((denselayer\d+\.(?:norm|conv))\.([12]\.))");
  return std::regex_replace(name, old, "$1$2");
}

// fastai's rule for images of other channels than those that were learnt from.
torch::Tensor for_channels(const torch::Tensor& weight, int64_t channels) {
  if (channels == 1) return weight.sum(1, /*keepdim=*/true);
  if (channels == 2) return weight.narrow(1, 0, 2) * 1.5;
  torch::Tensor wider = weight.new_zeros(
      {weight.size(0), channels, weight.size(2), weight.size(3)});
  wider.narrow(1, 0, weight.size(1)).copy_(weight);
  return wider;
}

}  // namespace

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
    std::string classifier)
    : name_(std::move(name)),
      make_body_(std::move(make_body)),
      second_group_(std::move(second_group)),
      classifier_(std::move(classifier)) {}

void VisionArch::load_pretrained(
    const VisionBody& body,
    const std::filesystem::path& file) const {
  Model model(body.module);
  const ModelTensor first = model.parameters().at(0);
  StateDict state;
  LoadOptions options{.strict = false, .ignore_mismatched_sizes = true};
  for (const auto& item : load_weights(file)) {
    std::string name = item.key();
    if (name.starts_with("module.")) name = name.substr(7);
    if (name.starts_with(kBody)) options.prefix = kBody;
    if (name.starts_with(classifier_)) continue;
    name = today(name);
    torch::Tensor tensor = item.value();
    if (name.ends_with(first.name) && tensor.dim() == 4 &&
        tensor.size(1) == 3 && first.tensor.size(1) != 3) {
      tensor = for_channels(tensor, first.tensor.size(1));
    }
    state.insert(name, tensor);
  }
  const LoadReport report = model.load_state_dict(state, options);
  TERN_CHECK_VALUE(
      report.is_complete(),
      "[VisionArch] {} is no file of weights for {}: {} Give weights of that "
      "network, as torchvision, fastai or a vision learner saves them.",
      file.string(),
      name_,
      report.to_string());
}

}  // namespace tern
