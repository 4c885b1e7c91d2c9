#include "tern/vision/fine_tuning.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/module_names.h"
#include "tern/vision/models/layers.h"

namespace tern {

namespace {

using Module = std::shared_ptr<torch::nn::Module>;

// Returns the Backbone in the model and its module name, which is empty if the
// model itself is a Backbone. The module is null if there is no Backbone.
std::pair<std::string, Module> find_backbone(const Module& model) {
  if (model) {
    for (const auto& item : model->named_modules()) {
      if (std::dynamic_pointer_cast<Backbone>(item.value())) {
        return {item.key(), item.value()};
      }
    }
  }
  return {};
}

bool is_sequence(const Module& module) {
  return std::dynamic_pointer_cast<torch::nn::SequentialImpl>(module) !=
         nullptr;
}

bool holds_blocks(const Module& module) {
  return std::ranges::any_of(module->children(), [](const Module& child) {
    return is_sequence(child) ? holds_blocks(child)
                              : !child->children().empty();
  });
}

// Appends the name of the first module of each layer group to `starts`. Blocks
// are the modules of the innermost sequences that have submodules. `between` is
// the first module with parameters since the last block, such as a downsampling
// layer.
void find_starts(
    const Module& module,
    const std::string& prefix,
    std::string& between,
    std::vector<std::string>& starts) {
  const auto holds_more = [](const Module& child) {
    return is_sequence(child) && holds_blocks(child);
  };
  const bool is_innermost =
      std::ranges::none_of(module->children(), holds_more);
  for (const auto& child : module->named_children()) {
    const std::string name = prefix + child.key();
    if (holds_more(child.value())) {
      find_starts(child.value(), name + ".", between, starts);
    } else if (
        is_innermost && !is_sequence(child.value()) &&
        !child.value()->children().empty()) {
      const bool is_next = !starts.empty() && !between.empty();
      starts.push_back(is_next ? between : name);
      between.clear();
    } else if (between.empty() && !child.value()->parameters().empty()) {
      between = name;
    }
  }
}

// True if `starts` names the first modules of all groups except the first.
bool begin_with(
    const std::vector<std::vector<ModelTensor>>& groups,
    const std::vector<std::string>& starts) {
  if (groups.size() != starts.size() + 1) return false;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (!is_in_module(groups[i + 1].front().name, starts[i])) return false;
  }
  return true;
}

}  // namespace

LearningRates layer_decay(Learner& learn, double lr, double decay) {
  TERN_CHECK_VALUE(
      std::isfinite(lr) && lr > 0 && decay > 0 && decay <= 1,
      "[layer_decay] lr is {} and decay is {}; expected a positive learning "
      "rate and a factor above 0 and up to 1.",
      lr,
      decay);
  const auto [name, backbone] = find_backbone(learn.model().module());
  TORCH_CHECK_VALUE(
      backbone,
      "[layer_decay] the model has no Backbone; expected one of Tern's "
      "networks. For other networks, call Learner::split and give a learning "
      "rate per group.");
  std::vector<std::string> starts;
  std::string between;
  find_starts(backbone, name.empty() ? "" : name + ".", between, starts);
  // The last group is kept. Its first module owns its first parameter.
  const auto& groups = parts_of(learn).groups.parameters;
  if (groups.size() > 1) {
    const std::string& head = groups.back().front().name;
    starts.push_back(head.substr(0, head.rfind('.')));
  }
  // The first group needs no start, even if the network begins with a block.
  const std::string& first = groups.front().front().name;
  if (!starts.empty() && is_in_module(first, starts[0])) {
    starts.erase(starts.begin());
  }
  if (!begin_with(groups, starts)) learn.split(starts);
  std::vector<double> rates(starts.size() + 1, lr);
  for (size_t i = rates.size() - 1; i > 0; --i) rates[i - 1] = rates[i] * decay;
  return LearningRates::per_group(std::move(rates));
}

void set_stochastic_depth(Learner& learn, double last) {
  const Module model = learn.model().module();
  TORCH_CHECK_VALUE(
      model,
      "[set_stochastic_depth] the model is TorchScript; expected a module "
      "written in C++.");
  set_stochastic_depth(*model, last);
}

}  // namespace tern
