#include "tern/learner/precision/master_weights.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

bool converts(const ModelTensor& item) {
  return item.tensor.is_floating_point() && item.layer != LayerKind::batch_norm;
}

// A view of `flat` at `offset` with the strides of `like`, which is dense.
torch::Tensor
view_at(const torch::Tensor& flat, int64_t offset, const torch::Tensor& like) {
  return flat.as_strided(like.sizes(), like.strides(), offset);
}

using Replacements = std::unordered_map<c10::TensorImpl*, torch::Tensor>;

Replacements check_lists(
    const torch::optim::Optimizer& optimizer,
    const std::vector<torch::Tensor>& from,
    const std::vector<torch::Tensor>& to) {
  TORCH_CHECK_VALUE(
      from.size() == to.size(),
      fmt::format(
          "[rebind_parameters] {} old and {} new parameters; expected as many.",
          from.size(),
          to.size()));
  Replacements by_old;
  for (size_t i = 0; i < from.size(); ++i) {
    TORCH_CHECK_VALUE(
        from[i].sizes() == to[i].sizes(),
        fmt::format(
            "[rebind_parameters] parameter {} has shape [{}], its replacement "
            "[{}]; expected the same.",
            i,
            fmt::join(from[i].sizes(), ", "),
            fmt::join(to[i].sizes(), ", ")));
    const bool is_new =
        by_old.emplace(from[i].unsafeGetTensorImpl(), to[i]).second;
    TORCH_CHECK_VALUE(
        is_new,
        fmt::format(
            "[rebind_parameters] parameter {} is in the list twice; expected "
            "each once.",
            i));
  }
  size_t owned = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& param : group.params()) {
      owned += by_old.count(param.unsafeGetTensorImpl());
    }
  }
  TORCH_CHECK_VALUE(
      owned == from.size(),
      fmt::format(
          "[rebind_parameters] the optimizer owns {} of {} parameters; "
          "expected all. Add the missing ones with add_param_group() instead.",
          owned,
          from.size()));
  return by_old;
}

}  // namespace

MasterWeights::MasterWeights(
    const Model& model,
    torch::ScalarType dtype,
    bool flat)
    : dtype_(dtype) {
  const torch::NoGradGuard no_grad;
  int64_t total = 0;
  for (const ModelTensor& item : model.parameters()) {
    if (!converts(item)) continue;
    index_[item.tensor.unsafeGetTensorImpl()] = weights_.size();
    weights_.push_back(item.tensor);
    total += item.tensor.numel();
  }
  torch::Tensor block;
  if (flat && !weights_.empty()) {
    block = torch::empty(total, weights_[0].options().dtype(torch::kFloat));
  }
  int64_t offset = 0;
  for (torch::Tensor& weight : weights_) {
    // The old fp32 storage itself becomes the master: no bit is lost.
    torch::Tensor master = weight.detach().to(torch::kFloat);
    if (block.defined() && master.is_non_overlapping_and_dense()) {
      torch::Tensor view = view_at(block, offset, master);
      offset += master.numel();
      view.copy_(master);
      master = view;
    }
    masters_.push_back(master);
    weight.mutable_grad().reset();
    weight.set_data(master.to(dtype));
  }
  for (const ModelTensor& item : model.parameters()) {
    if (!converts(item)) item.tensor.mutable_grad().reset();
  }
  for (ModelTensor& item : model.buffers()) {
    if (!converts(item)) continue;
    item.tensor.set_data(item.tensor.to(dtype));
    buffers_.push_back(item.tensor);
  }
}

torch::Tensor MasterWeights::of(const torch::Tensor& parameter) const {
  const auto at = index_.find(parameter.unsafeGetTensorImpl());
  return at == index_.end() ? parameter : masters_[at->second];
}

void MasterWeights::copy_gradients_to_masters() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const torch::Tensor& grad = weights_[i].grad();
    if (grad.defined()) {
      masters_[i].mutable_grad() = grad.to(torch::kFloat);
    } else {
      masters_[i].mutable_grad().reset();
    }
  }
}

void MasterWeights::move_gradients_to_weights() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const torch::Tensor grad = masters_[i].grad();
    if (!grad.defined()) continue;
    weights_[i].mutable_grad() = grad.to(dtype_);
    masters_[i].mutable_grad().reset();
  }
}

void MasterWeights::copy_masters_to_weights() {
  const torch::NoGradGuard no_grad;
  torch::_foreach_copy_(weights_, masters_);
}

void MasterWeights::zero_grad() {
  for (torch::Tensor& master : masters_) master.mutable_grad().reset();
}

void MasterWeights::restore() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i].mutable_grad().reset();
    weights_[i].set_data(masters_[i]);
  }
  for (torch::Tensor& buffer : buffers_) {
    buffer.set_data(buffer.to(torch::kFloat));
  }
}

void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const std::vector<torch::Tensor>& from,
    const std::vector<torch::Tensor>& to) {
  const Replacements by_old = check_lists(optimizer, from, to);
  auto& state = optimizer.state();
  // All are taken out before the first goes in: the lists may overlap.
  std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> moved;
  for (const torch::Tensor& param : from) {
    const auto found = state.find(param.unsafeGetTensorImpl());
    if (found == state.end()) {
      moved.push_back(nullptr);
      continue;
    }
    moved.push_back(std::move(found->second));
    state.erase(found);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (moved[i]) state[to[i].unsafeGetTensorImpl()] = std::move(moved[i]);
  }
  for (auto& group : optimizer.param_groups()) {
    for (torch::Tensor& param : group.params()) {
      const auto found = by_old.find(param.unsafeGetTensorImpl());
      if (found != by_old.end()) param = found->second;
    }
  }
}

std::shared_ptr<MasterWeights> master_weights(const Learner& learn) {
  return std::dynamic_pointer_cast<MasterWeights>(
      learn.parts().stepped_weights);
}

void set_master_weights(
    Learner& learn,
    std::shared_ptr<MasterWeights> masters) {
  torch::optim::Optimizer* const optimizer = learn.parts().optimizer.get();
  const auto before = master_weights(learn);
  if (optimizer && before) {
    rebind_parameters(*optimizer, before->masters(), before->weights());
  }
  if (optimizer && masters) {
    rebind_parameters(*optimizer, masters->weights(), masters->masters());
  }
  learn.parts().stepped_weights = std::move(masters);
}

}  // namespace tern
