#include "tern/vision/models/vision_arch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"

namespace tern {

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

const std::vector<std::pair<std::string, VisionArch>>& known() {
  static const std::vector<std::pair<std::string, VisionArch>> all = {
      {"resnet18", resnet18},
      {"resnet34", resnet34},
      {"resnet50", resnet50},
      {"resnet101", resnet101},
      {"xresnet18", xresnet18},
      {"xresnet34", xresnet34},
      {"xresnet50", xresnet50},
      {"mobilenet_v2", mobilenet_v2}};
  return all;
}

const VisionArch& named(const std::string& name) {
  const auto& all = known();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& entry) {
        return entry.first == name;
      });
  TORCH_CHECK_VALUE(
      found != all.end(),
      fmt::format(
          "[VisionArch] there is no network \"{}\"; expected one of {}.",
          name,
          fmt::join(VisionArch::names(), ", ")));
  return found->second;
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

std::vector<std::string> VisionArch::names() {
  std::vector<std::string> names;
  for (const auto& [name, arch] : known()) names.push_back(name);
  return names;
}

void VisionArch::load_pretrained(
    const VisionBody& body,
    const std::filesystem::path& file) const {
  Model model(body.module);
  const ModelTensor first = model.parameters().at(0);
  StateDict state;
  LoadOptions options{.strict = false, .skip_mis_shaped = true};
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
  TORCH_CHECK_VALUE(
      report.is_complete(),
      fmt::format(
          "[VisionArch] {} is no file of weights for {}: {} Give weights of "
          "that network, as torchvision, fastai or a vision learner saves "
          "them.",
          file.string(),
          name_,
          report.to_string()));
}

}  // namespace tern
