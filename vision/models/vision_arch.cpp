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

template <class Options, class Net>
VisionArch::MakeBody without_classifier(Net (*make)(const Options&)) {
  return [make](int64_t in_channels) {
    Options options;
    options.num_classes = 0;
    options.in_channels = in_channels;
    return VisionBody(make(options).ptr());
  };
}

const VisionArch& named(const std::string& name) {
  static const std::vector<VisionArch> known = {
      resnet18,
      resnet34,
      resnet50,
      resnet101,
      xresnet18,
      xresnet34,
      xresnet50,
      mobilenet_v2};
  const auto at = std::ranges::find(known, name, &VisionArch::name);
  TERN_CHECK_VALUE(
      at != known.end(),
      "[VisionArch] there is no network \"{}\"; expected one of {}.",
      name,
      fmt::join(std::views::transform(known, &VisionArch::name), ", "));
  return *at;
}

std::string name_of(ResNet (*make)(const ResNetOptions&)) {
  return make == resnet18    ? "resnet18"
         : make == resnet34  ? "resnet34"
         : make == resnet50  ? "resnet50"
         : make == resnet101 ? "resnet101"
                             : "this ResNet";
}

std::string name_of(XResNet (*make)(const XResNetOptions&)) {
  return make == xresnet18   ? "xresnet18"
         : make == xresnet34 ? "xresnet34"
         : make == xresnet50 ? "xresnet50"
                             : "this XResNet";
}

// What a vision learner calls its parts.
constexpr const char* kBody = "body.";

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

VisionArch::VisionArch(ResNet (*make)(const ResNetOptions&))
    : VisionArch(name_of(make), without_classifier(make), "layer3", "fc.") {}

VisionArch::VisionArch(XResNet (*make)(const XResNetOptions&))
    : VisionArch(name_of(make), without_classifier(make), "4", "11.") {}

VisionArch::VisionArch(MobileNetV2 (*make)(const MobileNetV2Options&))
    : VisionArch(
          "mobilenet_v2",
          without_classifier(make),
          "features.7",
          "classifier.") {}

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
