#include <optional>
#include <set>
#include <string>

#include "tern/kernels/check.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/models/matting/matting_base.h"

namespace tern {

namespace {

constexpr const char* kDeepLabAspp = "classifier.classifier.0.";

// Converts the name of a DeepLabV3 weight to the name in Tern; leaves other
// names unchanged.
std::string our_name(std::string name) {
  if (name.starts_with("module.")) name = name.substr(7);
  if (name.starts_with(kDeepLabAspp)) {
    return "aspp." + name.substr(std::string(kDeepLabAspp).size());
  }
  for (const std::string half :
       {"backbone.low_level_features.", "backbone.high_level_features."}) {
    if (name.starts_with(half)) {
      return "backbone.features." + name.substr(half.size());
    }
  }
  return name;
}

std::string part_of(const std::string& name) {
  return name.substr(0, name.find('.'));
}

std::optional<MattingBackbone> backbone_of(const std::set<std::string>& names) {
  const auto has = [&](const std::string& prefix) {
    const auto at = names.lower_bound(prefix);
    return at != names.end() && at->starts_with(prefix);
  };
  if (has("backbone.features.")) return MattingBackbone::mobilenet_v2;
  if (has("backbone.layer3.22.")) return MattingBackbone::resnet101;
  if (has("backbone.layer3.")) return MattingBackbone::resnet50;
  return std::nullopt;
}

std::set<std::string> names_of(const StateDict& state) {
  const std::vector<std::string> names = state.keys();
  return {names.begin(), names.end()};
}

void check(
    const std::set<std::string>& wanted,
    const std::set<std::string>& given,
    const std::string& file) {
  const auto ours = backbone_of(wanted), theirs = backbone_of(given);
  TORCH_CHECK_VALUE(
      ours,
      "[load_matting_weights] the model has no matting backbone; expected a "
      "MattingBase or MattingRefine.");
  TERN_CHECK_VALUE(
      theirs == ours,
      "[load_matting_weights] {} has weights of {}, but the model is built on "
      "{}; expected the same backbone. Create the network with the backbone of "
      "the file, or pass a different file.",
      file,
      theirs ? to_string(*theirs) : "no matting backbone",
      to_string(*ours));
  // A part that occurs in the file must be complete. The backbone is required.
  std::set<std::string> parts = {"backbone"};
  for (const std::string& name : given) parts.insert(part_of(name));
  for (const std::string& name : wanted) {
    TERN_CHECK_VALUE(
        given.contains(name) || !parts.contains(part_of(name)) ||
            name.ends_with("num_batches_tracked"),
        "[load_matting_weights] {} has no \"{}\", though it has other weights "
        "of \"{}\"; expected all of them. The file may be truncated, or belong "
        "to a different network.",
        file,
        name,
        part_of(name));
  }
}

}  // namespace

LoadReport load_matting_weights(
    Model model,
    const std::filesystem::path& file) {
  const StateDict state = model.state_dict();
  std::set<std::string> parts;
  for (const auto& item : state) parts.insert(part_of(item.key()));
  const StateDict read = load_weights(file);
  StateDict given;
  given.unverified = read.unverified;
  bool is_deeplab = false;
  for (const auto& item : read) {
    const std::string name = our_name(item.key());
    is_deeplab |= item.key().find(kDeepLabAspp) != std::string::npos;
    if (parts.contains(part_of(name)) && !given.contains(name)) {
      given.insert(name, item.value());
    }
  }
  check(names_of(state), names_of(given), file.string());
  return model.load_state_dict(
      given,
      {.strict = false, .ignore_mismatched_sizes = is_deeplab});
}

}  // namespace tern
