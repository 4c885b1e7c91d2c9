#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/weights/model_weights.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/models/transformers/attention.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/models/weight_names.h"

namespace tern {

namespace {

// Prefixes that PyTorch's wrappers and vision learners add to a body's names.
constexpr const char* kPrefixes[] = {"module.", "_orig_mod.", "body."};

// A file's tensors under the network's names, and the names of skipped tensors.
struct Adapted {
  StateDict state;
  std::vector<std::string> skipped;
};

// Returns the prefix that some names begin with, or null.
const char* prefix_in(const StateDict& state) {
  for (const char* const prefix : kPrefixes) {
    for (const auto& item : state) {
      if (item.key().starts_with(prefix)) return prefix;
    }
  }
  return nullptr;
}

// Loops because a network can be in several wrappers.
Adapted without_prefixes(const StateDict& file) {
  Adapted result{file, {}};
  while (const char* const prefix = prefix_in(result.state)) {
    const StateDict before = std::exchange(result.state, StateDict());
    for (const auto& item : before) {
      if (item.key().starts_with(prefix)) {
        result.state.insert(
            item.key().substr(std::string_view(prefix).size()),
            item.value());
      } else {
        result.skipped.push_back(item.key());
      }
    }
  }
  return result;
}

// True for Swin's window index and mask, which are constant and not in every
// file.
bool is_constant(const std::string& name) {
  return name.ends_with("relative_position_index") ||
         name.ends_with("attn_mask");
}

// fastai's rule for a number of input channels that differs from the pretrained
// network's.
torch::Tensor for_channels(const torch::Tensor& weight, int64_t channels) {
  if (channels == 1) return weight.sum(1, /*keepdim=*/true);
  if (channels == 2) return weight.narrow(1, 0, 2) * 1.5;
  torch::Tensor wider = weight.new_zeros(
      {weight.size(0), channels, weight.size(2), weight.size(3)});
  wider.narrow(1, 0, weight.size(1)).copy_(weight);
  return wider;
}

bool is_square(int64_t number) {
  const auto side = std::lround(std::sqrt(static_cast<double>(number)));
  return side * side == number;
}

// Converts a file's tensor to the shape of the model's tensor, if possible.
torch::Tensor shaped(
    const torch::Tensor& given,
    const ModelTensor& target,
    bool is_first_convolution) {
  const torch::Tensor& wanted = target.tensor;
  if (given.sizes() == wanted.sizes()) return given;
  if (is_first_convolution && given.dim() == 4 && given.size(1) == 3) {
    return for_channels(given, wanted.size(1));
  }
  // Differs only by dimensions of size 1: timm's layer scale, or a linear layer
  // that is a 1x1 convolution here.
  if (given.squeeze().sizes() == wanted.squeeze().sizes()) {
    return given.reshape(wanted.sizes());
  }
  const bool is_position = target.name.ends_with("pos_embedding") ||
                           target.name.ends_with("pos_embed");
  if (is_position && given.dim() == 3 && given.size(2) == wanted.size(2) &&
      is_square(given.size(1) - 1)) {
    const auto side =
        std::lround(std::sqrt(static_cast<double>(wanted.size(1) - 1)));
    return resize_positions(given, side, side);
  }
  return given;
}

}  // namespace

LoadReport VisionArch::load_pretrained(
    Model model,
    const std::filesystem::path& file) const {
  const StateDict read = load_weights(file);
  auto [given, skipped] = without_prefixes(read);
  const std::vector<ModelTensor> wanted = model.state();
  std::unordered_map<std::string, const ModelTensor*> by_name;
  const ModelTensor* first_convolution = nullptr;
  bool has_classifier = false;
  StateDict state;
  state.unverified = read.unverified;
  std::vector<std::string> wanted_names;
  for (const ModelTensor& item : wanted) {
    wanted_names.push_back(item.name);
    by_name[item.name] = &item;
    if (item.name.starts_with(classifier_)) has_classifier = true;
    if (!first_convolution && item.tensor.dim() == 4) first_convolution = &item;
    if (is_constant(item.name)) state.insert(item.name, item.tensor);
  }
  const std::vector<std::string> names =
      torchvision_names(given.keys(), wanted_names);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const auto target = by_name.find(name);
    const bool is_classifier = name.starts_with(classifier_);
    if (is_constant(name)) continue;
    if (is_classifier && !has_classifier) {
      skipped.push_back(given[i].key());
    } else if (target == by_name.end()) {
      state.insert(name, given[i].value());
    } else {
      const ModelTensor& item = *target->second;
      state.insert(
          name,
          shaped(given[i].value(), item, &item == first_convolution));
    }
  }
  const LoadPlan plan = plan_load(
      wanted,
      state,
      {.strict = false, .ignore_mismatched_sizes = true});
  LoadReport report = plan.report;
  const bool is_other_head = !report.mismatched.empty() &&
                             report.mismatched[0].name.starts_with(classifier_);
  TERN_CHECK_VALUE(
      report.is_complete(),
      "[VisionArch] {} does not hold the weights of {}: {}. {}",
      file.string(),
      name_,
      report.to_string(),
      is_other_head ? "Its classifier has a different size: create the network "
                      "with the same number of classes, or with .num_classes = "
                      "0 to load all but the classifier."
                    : "Use weights of that network, as torchvision, timm, "
                      "fastai or a vision learner saves them.");
  plan.apply();
  report.skipped = std::move(skipped);
  return report;
}

}  // namespace tern
