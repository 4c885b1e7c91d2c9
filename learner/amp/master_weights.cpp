#include "tern/learner/amp/master_weights.h"

#include <utility>

#include <torch/utils.h>

#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

bool converts(const ModelTensor& item, const KeptParameters& kept) {
  return item.tensor.is_floating_point() &&
         item.layer != LayerKind::batch_norm &&
         !kept.contains(item.tensor.unsafeGetTensorImpl());
}

}  // namespace

MasterWeights::MasterWeights(
    const Model& model,
    torch::ScalarType dtype,
    bool flat,
    const KeptParameters& kept,
    bool has_masters)
    : dtype_(dtype) {
  const torch::NoGradGuard no_grad;
  int64_t total = 0;
  for (const ModelTensor& item : model.parameters()) {
    item.tensor.mutable_grad().reset();
    if (!converts(item, kept)) continue;
    if (!has_masters) {
      convert(item.tensor);
      continue;
    }
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
      const torch::Tensor view =
          block.as_strided(master.sizes(), master.strides(), offset);
      offset += master.numel();
      view.copy_(master);
      master = view;
    }
    masters_.push_back(master);
    weight.set_data(master.to(dtype));
  }
  for (ModelTensor& item : model.buffers()) {
    if (converts(item, kept)) convert(item.tensor);
  }
}

void MasterWeights::convert(torch::Tensor tensor) {
  tensor.set_data(tensor.detach().to(dtype_));
  converted_.push_back(std::move(tensor));
}

torch::Tensor MasterWeights::of(const torch::Tensor& parameter) const {
  const auto at = index_.find(parameter.unsafeGetTensorImpl());
  return at == index_.end() ? parameter : masters_[at->second];
}

void MasterWeights::move_gradients_to_masters() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const torch::Tensor grad =
        std::exchange(weights_[i].mutable_grad(), torch::Tensor());
    masters_[i].mutable_grad() =
        grad.defined() ? grad.to(torch::kFloat) : torch::Tensor();
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
  if (masters_.empty()) return;
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
  for (torch::Tensor& tensor : converted_) {
    tensor.mutable_grad().reset();
    tensor.set_data(tensor.detach().to(torch::kFloat));
  }
}

void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const Tensors& from,
    const Tensors& to) {
  auto& state = optimizer.state();
  std::unordered_map<c10::TensorImpl*, torch::Tensor> by_old;
  // All are taken out before the first goes in: the lists may overlap.
  std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> moved;
  for (size_t i = 0; i < from.size(); ++i) {
    by_old[from[i].unsafeGetTensorImpl()] = to[i];
    moved.push_back(std::move(state[from[i].unsafeGetTensorImpl()]));
    state.erase(from[i].unsafeGetTensorImpl());
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
      parts_of(learn).stepped_weights);
}

void set_master_weights(
    Learner& learn,
    std::shared_ptr<MasterWeights> masters) {
  torch::optim::Optimizer* const optimizer = parts_of(learn).optimizer.get();
  const auto before = master_weights(learn);
  if (optimizer && before) {
    rebind_parameters(*optimizer, before->masters(), before->weights());
  }
  if (optimizer && masters) {
    rebind_parameters(*optimizer, masters->weights(), masters->masters());
  }
  parts_of(learn).stepped_weights = std::move(masters);
}

}  // namespace tern
