#include "tern/vision/models/layers.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {

torch::Tensor LayersImpl::forward(const torch::Tensor& x) {
  return SequentialImpl::forward(x);
}

std::shared_ptr<torch::nn::Module> LayersImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::make_shared<LayersImpl>();
  for (const auto& own : named_parameters(/*recurse=*/false)) {
    const torch::Tensor value = own.value().detach().clone();
    copy->register_parameter(own.key(), device ? value.to(*device) : value);
  }
  auto layer = begin();
  for (const auto& child : named_children()) {
    copy->push_back(child.key(), (layer++)->clone(device));
  }
  return copy;
}

void register_part(
    torch::nn::Module& whole,
    const std::string& name,
    const std::shared_ptr<torch::nn::Module>& part) {
  if (!name.empty()) {
    whole.register_module(name, part);
    return;
  }
  for (const auto& item : part->named_parameters(/*recurse=*/false)) {
    whole.register_parameter(item.key(), item.value());
  }
  for (const auto& item : part->named_children()) {
    whole.register_module(item.key(), item.value());
  }
}

SqueezeExcitationImpl::SqueezeExcitationImpl(
    int64_t channels,
    int64_t squeezed,
    LayerEnd middle,
    LayerEnd gate)
    : channels_(channels), squeezed_(squeezed), middle_(middle), gate_(gate) {
  reset();
}

void SqueezeExcitationImpl::reset() {
  const auto pointwise = [](int64_t in, int64_t out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1));
  };
  fc1_ = register_module("fc1", pointwise(channels_, squeezed_));
  fc2_ = register_module("fc2", pointwise(squeezed_, channels_));
}

torch::Tensor SqueezeExcitationImpl::forward(const torch::Tensor& x) {
  const torch::Tensor means = torch::adaptive_avg_pool2d(x, {1, 1});
  const torch::Tensor squeezed = activate(fc1_->forward(means), middle_);
  return x * activate(fc2_->forward(squeezed), gate_);
}

torch::Tensor StochasticDepth::dropped(
    const torch::Tensor& branch,
    bool is_training) const {
  const double p = stochastic_depth;
  if (p == 0 || !is_training) return branch;
  std::vector<int64_t> one_each(branch.dim(), 1);
  one_each[0] = branch.size(0);
  const torch::Tensor kept = torch::empty(one_each, branch.options());
  return branch * kept.bernoulli_(1 - p).div_(1 - p);
}

void set_stochastic_depth(torch::nn::Module& network, double last) {
  std::vector<StochasticDepth*> blocks;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* block = dynamic_cast<StochasticDepth*>(module.get())) {
      blocks.push_back(block);
    }
  }
  TORCH_CHECK_VALUE(
      !blocks.empty(),
      "[set_stochastic_depth] the network has no blocks to drop; expected a "
      "network such as a ConvNeXt, EfficientNet, ViT or Swin.");
  TERN_CHECK_VALUE(
      last >= 0 && last < 1,
      "[set_stochastic_depth] the last of {} blocks would be dropped with "
      "probability {}; expected a probability in [0, 1).",
      blocks.size(),
      last);
  const double steps = std::max(static_cast<double>(blocks.size()) - 1, 1.);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i]->stochastic_depth = last * static_cast<double>(i) / steps;
  }
}

torch::Tensor FeatureNetwork::forward(const torch::Tensor& x) {
  const torch::Tensor y = means(x);
  return classifier_.is_empty() ? y : classifier_.forward(y);
}

torch::Tensor FeatureNetwork::stage(size_t index, const torch::Tensor& x) {
  if (index == 0) {
    TERN_CHECK_VALUE(
        x.dim() == 4 && std::min(x.size(2), x.size(3)) >= least_side_,
        "[Backbone::stage] the images are [{}]; this network expects [N, C, H, "
        "W] with H and W of at least {} pixels. Enlarge them, or use a network "
        "such as resnet18.",
        fmt::join(x.sizes(), ", "),
        least_side_);
  }
  torch::Tensor y = x;
  for (size_t i = index == 0 ? 0 : ends_[index - 1]; i < ends_[index]; ++i) {
    y = (features_->begin() + static_cast<int64_t>(i))->forward(y);
  }
  return y;
}

void FeatureNetwork::clear(int64_t least_side) {
  least_side_ = least_side;
  features_ = Layers();
  classifier_ = {};
  channels_.clear();
  ends_.clear();
}

void FeatureNetwork::appended(int64_t channels, int64_t stride) {
  if (stride > 1) {
    channels_.emplace_back();
    ends_.emplace_back();
  }
  channels_.back() = channels;
  ends_.back() = features_->size();
}

}  // namespace tern
