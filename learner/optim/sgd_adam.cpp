// What the fused optimizers differ in: their options and what they remember.

#include <torch/serialize/archive.h>

#include "tern/kernels/check.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"

namespace tern::optim {

std::vector<std::pair<std::string, torch::Tensor*>> FusedParamState::tensors() {
  std::vector<std::pair<std::string, torch::Tensor*>> all = {{"step", &step}};
  for (size_t k = 0; k < names_.size(); ++k) {
    all.emplace_back(names_[k], &moments[k]);
  }
  return all;
}

void FusedParamState::serialize(torch::serialize::InputArchive& archive) {
  // torch::optim::SGD counts nothing, but a buffer tells of a step.
  double host_step = 1;
  torch::Tensor like;
  for (auto& [name, tensor] : tensors()) {
    c10::IValue value;
    if (!archive.try_read(name, value)) continue;
    if (value.isTensor()) {
      *tensor = value.toTensor();
      if (tensor != &step) like = *tensor;
    } else {  // torch::optim::Adam counts on the host
      host_step = static_cast<double>(value.toInt());
    }
  }
  if (step.defined() || !like.defined()) return;
  step = torch::full({}, host_step, like.options().dtype(torch::kFloat));
}

void FusedParamState::serialize(
    torch::serialize::OutputArchive& archive) const {
  for (auto& [name, tensor] : const_cast<FusedParamState*>(this)->tensors()) {
    if (tensor->defined()) archive.write(name, c10::IValue(*tensor));
  }
}

SGD::SGD(const Groups& groups, const Options& defaults)
    : FusedOptimizerOf(
          "tern::optim::SGD",
          groups,
          defaults,
          /*decoupled_weight_decay=*/false) {
  for (const auto& group : param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    check_not_negative("lr", options.lr());
    check_not_negative("momentum", options.momentum());
    check_not_negative("weight_decay", options.weight_decay());
    TERN_CHECK_VALUE(
        !options.nesterov() ||
            (options.momentum() > 0 && options.dampening() == 0),
        "[{}] nesterov with momentum {} and dampening {}; expected momentum > "
        "0 and dampening 0.",
        name(),
        options.momentum(),
        options.dampening());
  }
}

SGD::Args SGD::args_of(const torch::optim::OptimizerOptions& of_group) const {
  const auto& options = static_cast<const Options&>(of_group);
  return FusedSgdArgs{
      .lr = options.lr(),
      .momentum = options.momentum(),
      .dampening = options.dampening(),
      .weight_decay = options.weight_decay(),
      .nesterov = options.nesterov(),
      .decoupled_weight_decay = decoupled_weight_decay()};
}

template <class AdamOptions>
AdamBase<AdamOptions>::AdamBase(
    const FusedOptimizer::Groups& groups,
    const AdamOptions& defaults)
    : FusedOptimizerOf<AdamParamState, AdamOptions>(
          kIsAdamW ? "tern::optim::AdamW" : "tern::optim::Adam",
          groups,
          defaults,
          /*decoupled_weight_decay=*/kIsAdamW) {
  for (const auto& group : this->param_groups()) {
    const auto& options = static_cast<const AdamOptions&>(group.options());
    const auto [beta1, beta2] = options.betas();
    this->check_not_negative("lr", options.lr());
    this->check_not_negative("eps", options.eps());
    this->check_not_negative("weight_decay", options.weight_decay());
    TERN_CHECK_VALUE(
        0 <= beta1 && beta1 < 1 && 0 <= beta2 && beta2 < 1,
        "[{}] betas are ({}, {}); expected both in [0, 1).",
        this->name(),
        beta1,
        beta2);
  }
}

template <class AdamOptions>
FusedOptimizer::Args AdamBase<AdamOptions>::args_of(
    const torch::optim::OptimizerOptions& of_group) const {
  const auto& options = static_cast<const AdamOptions&>(of_group);
  return FusedAdamArgs{
      .lr = options.lr(),
      .beta1 = std::get<0>(options.betas()),
      .beta2 = std::get<1>(options.betas()),
      .eps = options.eps(),
      .weight_decay = options.weight_decay(),
      .amsgrad = options.amsgrad(),
      .decoupled_weight_decay = this->decoupled_weight_decay()};
}

template class AdamBase<torch::optim::AdamOptions>;
template class AdamBase<torch::optim::AdamWOptions>;

}  // namespace tern::optim
