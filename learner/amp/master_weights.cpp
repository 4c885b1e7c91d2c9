#include "tern/learner/amp/master_weights.h"

#include <unordered_set>
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

// Returns the module's parameters. If one of them is a buffer of the model, it
// is a frozen weight of add_lora.
std::unordered_set<c10::TensorImpl*> module_parameters(const Model& model) {
  std::unordered_set<c10::TensorImpl*> result;
  if (!model.module()) return result;
  for (const torch::Tensor& p : model.module()->parameters()) {
    result.insert(p.unsafeGetTensorImpl());
  }
  return result;
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
      round(item.tensor);
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
    // The old fp32 storage itself becomes the master weight, so no bit is lost.
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
  const auto weights_of_module = module_parameters(model);
  for (const ModelTensor& item : model.buffers()) {
    if (!converts(item, kept)) continue;
    c10::TensorImpl* const impl = item.tensor.unsafeGetTensorImpl();
    if (weights_of_module.contains(impl)) {
      round(item.tensor);
      continue;
    }
    buffer_index_[impl] = buffers_.size();
    const torch::Tensor exact = item.tensor.detach();
    torch::Tensor of_model = item.tensor;
    of_model.set_data(exact.to(dtype, false, /*copy=*/true));
    buffers_.push_back({of_model, exact, of_model._version()});
  }
}

void MasterWeights::round(torch::Tensor tensor) {
  rounded_.emplace_back(tensor, tensor.scalar_type());
  tensor.set_data(tensor.detach().to(dtype_));
}

torch::Tensor MasterWeights::of(const torch::Tensor& parameter) const {
  const auto at = index_.find(parameter.unsafeGetTensorImpl());
  return at == index_.end() ? parameter : masters_[at->second];
}

torch::Tensor MasterWeights::exact(const torch::Tensor& tensor) {
  const auto at = buffer_index_.find(tensor.unsafeGetTensorImpl());
  if (at == buffer_index_.end()) return of(tensor);
  follow(buffers_[at->second]);
  return buffers_[at->second].exact;
}

// If an element equals the rounded copy, the copy keeps its exact value.
void MasterWeights::follow(Buffer& buffer) {
  const torch::NoGradGuard no_grad;
  buffer.version = buffer.of_model._version();
  const torch::Tensor now = buffer.of_model.detach();
  const torch::Tensor written = now.to(buffer.exact.scalar_type());
  if (now.sizes() != buffer.exact.sizes()) {  // replaced by the model
    buffer.exact = written.clone();
    return;
  }
  buffer.exact.copy_(torch::where(
      now.eq(buffer.exact.to(now.scalar_type())),
      buffer.exact,
      written));
}

void MasterWeights::follow_buffers() {
  for (Buffer& buffer : buffers_) {
    // A replayed CUDA graph does not increment the versions of tensors that it
    // writes.
    const bool is_counted = buffer.of_model.is_cpu();
    if (is_counted && buffer.version == buffer.of_model._version()) continue;
    follow(buffer);
  }
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

void MasterWeights::copy_to_model() {
  const torch::NoGradGuard no_grad;
  copy_masters_to_weights();
  for (Buffer& buffer : buffers_) {
    buffer.of_model.copy_(buffer.exact);
    buffer.version = buffer.of_model._version();
  }
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
  for (auto& [tensor, type] : rounded_) {
    tensor.mutable_grad().reset();
    tensor.set_data(tensor.detach().to(type));
  }
  for (Buffer& buffer : buffers_) {
    follow(buffer);
    buffer.of_model.set_data(buffer.exact);
  }
}

void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const Tensors& from,
    const Tensors& to) {
  auto& state = optimizer.state();
  std::unordered_map<c10::TensorImpl*, torch::Tensor> by_old;
  // Removes all before inserting any, because the lists may overlap.
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
