// The options and states that differ between the fused optimizers.

#include <tuple>

#include <torch/optim/serialize.h>
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
  all.emplace_back("slow_weights", &slow_weights);
  return all;
}

void FusedParamState::serialize(torch::serialize::InputArchive& archive) {
  // torch::optim::SGD has no step count; a buffer means at least one step.
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

SGD::SGD(
    const Groups& groups,
    const Options& defaults,
    const FusedOptions& fused)
    : FusedOptimizerOf(
          "tern::optim::SGD",
          groups,
          defaults,
          fused,
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
      .decoupled_weight_decay = decoupled_weight_decay(),
      .lookahead = fused().lookahead};
}

void LarcOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust_coeff);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, clip);
}

void LarcOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust_coeff);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(clip);
}

Larc::Larc(
    const Groups& groups,
    const Options& defaults,
    const FusedOptions& fused)
    : FusedOptimizerOf(
          "tern::optim::Larc",
          groups,
          defaults,
          fused,
          /*decoupled_weight_decay=*/true) {
  for (const auto& group : param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    check_not_negative("lr", options.lr());
    check_not_negative("momentum", options.momentum());
    check_not_negative("weight_decay", options.weight_decay());
    check_not_negative("eps", options.eps());
    TERN_CHECK_VALUE(
        options.trust_coeff() > 0,
        "[{}] trust_coeff is {}; expected > 0. Without a trust ratio use "
        "tern::optim::SGD.",
        name(),
        options.trust_coeff());
  }
}

Larc::Args Larc::args_of(const torch::optim::OptimizerOptions& of_group) const {
  const auto& options = static_cast<const Options&>(of_group);
  return FusedSgdArgs{
      .lr = options.lr(),
      .momentum = options.momentum(),
      .weight_decay = options.weight_decay(),
      .decoupled_weight_decay = decoupled_weight_decay(),
      .trust_coeff = options.trust_coeff(),
      .eps = options.eps(),
      .clip = options.clip(),
      .lookahead = fused().lookahead};
}

template <class AdamOptions>
AdamBase<AdamOptions>::AdamBase(
    const char* name,
    const FusedAdamArgs& kind,
    const FusedOptimizer::Groups& groups,
    const AdamOptions& defaults,
    const FusedOptions& fused)
    : FusedOptimizerOf<AdamParamState, AdamOptions>(
          name,
          groups,
          defaults,
          fused,
          kind.decoupled_weight_decay),
      kind_(kind) {
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
    TERN_CHECK_VALUE(
        !options.amsgrad() || !kind.trust_ratio,
        "[{}] amsgrad is true; expected false.",
        name);
  }
}

template <class AdamOptions>
FusedOptimizer::Args AdamBase<AdamOptions>::args_of(
    const torch::optim::OptimizerOptions& of_group) const {
  const auto& options = static_cast<const AdamOptions&>(of_group);
  FusedAdamArgs args = kind_;
  args.lr = options.lr();
  std::tie(args.beta1, args.beta2) = options.betas();
  args.eps = options.eps();
  args.weight_decay = options.weight_decay();
  args.amsgrad = options.amsgrad();
  args.decoupled_weight_decay = this->decoupled_weight_decay();
  args.lookahead = this->fused().lookahead;
  return args;
}

template class AdamBase<torch::optim::AdamOptions>;
template class AdamBase<torch::optim::AdamWOptions>;

}  // namespace tern::optim
