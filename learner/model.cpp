#include "tern/learner/model.h"

#include <unordered_set>

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/data/support/memory.h"
#include "tern/learner/forward_error.h"

namespace tern {

namespace {

LayerKind kind_of(const torch::nn::Module& module) {
  using namespace torch::nn;  // NOLINT: local, the list is long
  if (module.as<BatchNorm1d>() || module.as<BatchNorm2d>() ||
      module.as<BatchNorm3d>()) {
    return LayerKind::batch_norm;
  }
  if (module.as<LayerNorm>() || module.as<GroupNorm>() ||
      module.as<InstanceNorm1d>() || module.as<InstanceNorm2d>() ||
      module.as<InstanceNorm3d>()) {
    return LayerKind::other_norm;
  }
  return LayerKind::other;
}

// Calls `visit(prefix, module)` for the root, then for each module in it,
// parents before children. `prefix` begins the names of the module's tensors.
template <class Visit>
void each_module(torch::nn::Module& root, const Visit& visit) {
  visit(std::string(), root);
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    visit(item.key() + ".", *item.value());
  }
}

void add_tensors(
    const std::string& prefix,
    const torch::nn::Module& module,
    const torch::OrderedDict<std::string, torch::Tensor>& items,
    std::vector<ModelTensor>& tensors) {
  for (const auto& item : items) {
    if (!item.value().defined()) continue;
    tensors.push_back({prefix + item.key(), item.value(), kind_of(module)});
  }
}

template <class Get>
std::vector<ModelTensor> collect(torch::nn::Module& root, const Get& get) {
  std::vector<ModelTensor> tensors;
  each_module(root, [&](const std::string& prefix, torch::nn::Module& module) {
    add_tensors(prefix, module, get(module), tensors);
  });
  std::unordered_set<c10::TensorImpl*> seen;
  std::erase_if(tensors, [&](const ModelTensor& item) {
    return !seen.insert(item.tensor.unsafeGetTensorImpl()).second;
  });
  return tensors;
}

}  // namespace

bool ModelTensor::is_bias() const {
  return name == "bias" || name.ends_with(".bias");
}

namespace detail {

void no_such_forward(const std::string& module, size_t inputs) {
  throw c10::ValueError(
      {__func__, __FILE__, __LINE__},
      fmt::format(
          "[Model] {} has no forward for the {} inputs of the batch; expected "
          "forward(Tensor, ...) with that many tensors, or forward(Tensors). "
          "Change the inputs of the dataset or the forward of the model.",
          module,
          inputs));
}

NnModel::NnModel(std::shared_ptr<torch::nn::Module> module)
    : module_(std::move(module)) {
  TORCH_CHECK_VALUE(module_, "[Model] the module is null; expected a module.");
}

std::vector<ModelTensor> NnModel::parameters() const {
  return collect(*module_, [](torch::nn::Module& m) {
    return m.named_parameters(/*recurse=*/false);
  });
}

std::vector<ModelTensor> NnModel::buffers() const {
  return collect(*module_, [](torch::nn::Module& m) {
    return m.named_buffers(/*recurse=*/false);
  });
}

std::vector<ModelTensor> NnModel::state() const {
  std::vector<ModelTensor> tensors;
  each_module(*module_, [&](const std::string& prefix, torch::nn::Module& m) {
    add_tensors(prefix, m, m.named_parameters(/*recurse=*/false), tensors);
    add_tensors(prefix, m, m.named_buffers(/*recurse=*/false), tensors);
  });
  return tensors;
}

}  // namespace detail

Model::Model(std::shared_ptr<ModelImpl> impl) : impl_(std::move(impl)) {
  TORCH_CHECK_VALUE(impl_, "[Model] the pointer is null; expected a network.");
}

Tensors Model::forward(const Tensors& inputs) {
  try {
    return impl_->forward(inputs);
  } catch (const c10::Error& error) {
    const std::string reason = reason_of(error);
    // The error already is a full sentence, or is not caused by the inputs but
    // by memory, the GPU or another process.
    if (reason.starts_with('[') || is_out_of_memory(error) ||
        dynamic_cast<const c10::AcceleratorError*>(&error) ||
        dynamic_cast<const c10::DistError*>(&error)) {
      throw;
    }
    throw c10::ValueError(
        {__func__, __FILE__, __LINE__},
        explain_forward_error(*impl_, inputs, reason));
  }
}

}  // namespace tern
