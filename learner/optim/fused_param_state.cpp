#include "tern/learner/optim/fused_param_state.h"

#include <torch/serialize/archive.h>

namespace tern::optim {

void FusedParamState::serialize(torch::serialize::InputArchive& archive) {
  double host_step = 0;
  bool has_host_step = false;
  torch::Tensor like;
  for (auto& [name, tensor] : tensors()) {
    c10::IValue value;
    if (!archive.try_read(name, value)) continue;
    if (value.isTensor()) {
      *tensor = value.toTensor();
      if (tensor != &step) like = *tensor;
    } else {  // torch::optim::Adam counts on the host
      host_step = static_cast<double>(value.toInt());
      has_host_step = true;
    }
  }
  if (step.defined() || !like.defined()) return;
  // torch::optim::SGD counts nothing, but a buffer tells of a step.
  step = torch::full(
      {},
      has_host_step ? host_step : 1.0,
      like.options().dtype(torch::kFloat));
}

void FusedParamState::serialize(
    torch::serialize::OutputArchive& archive) const {
  for (auto& [name, tensor] : const_cast<FusedParamState*>(this)->tensors()) {
    if (tensor->defined()) archive.write(name, c10::IValue(*tensor));
  }
}

}  // namespace tern::optim
