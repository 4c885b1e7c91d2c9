#include "tern/learner/optim/adam_base.h"

#include <fmt/format.h>
#include <torch/optim/serialize.h>

namespace tern::optim {

std::vector<std::pair<std::string, torch::Tensor*>> AdamParamState::tensors() {
  return {
      {"step", &step},
      {"exp_avg", &exp_avg},
      {"exp_avg_sq", &exp_avg_sq},
      {"max_exp_avg_sq", &max_exp_avg_sq}};
}

std::unique_ptr<torch::optim::OptimizerParamState> AdamParamState::clone()
    const {
  return std::make_unique<AdamParamState>(*this);
}

template <class AdamOptions>
AdamBase<AdamOptions>::AdamBase(
    const char* name,
    const Groups& groups,
    const Options& defaults,
    bool decoupled_weight_decay)
    : FusedOptimizer(
          name,
          groups,
          std::make_unique<Options>(defaults),
          decoupled_weight_decay) {
  for (const auto& group : param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    const auto [beta1, beta2] = options.betas();
    check_option(
        options.lr() >= 0,
        fmt::format("lr is {}; expected >= 0.", options.lr()));
    check_option(
        options.eps() >= 0,
        fmt::format("eps is {}; expected >= 0.", options.eps()));
    check_option(
        0 <= beta1 && beta1 < 1 && 0 <= beta2 && beta2 < 1,
        fmt::format(
            "betas are ({}, {}); expected both in [0, 1).",
            beta1,
            beta2));
    check_option(
        options.weight_decay() >= 0,
        fmt::format(
            "weight_decay is {}; expected >= 0.",
            options.weight_decay()));
  }
}

template <class AdamOptions>
std::unique_ptr<FusedParamState> AdamBase<AdamOptions>::new_state() const {
  return std::make_unique<AdamParamState>();
}

template <class AdamOptions>
FusedOptimizer::Buffers AdamBase<AdamOptions>::prepare_buffers(
    FusedParamState& state,
    const torch::Tensor& param,
    const torch::optim::OptimizerOptions& options) const {
  auto& adam = static_cast<AdamParamState&>(state);
  const bool amsgrad = static_cast<const Options&>(options).amsgrad();
  if (!adam.exp_avg.defined()) adam.exp_avg = torch::zeros_like(param);
  if (!adam.exp_avg_sq.defined()) adam.exp_avg_sq = torch::zeros_like(param);
  if (!amsgrad) return {adam.exp_avg, adam.exp_avg_sq};
  if (!adam.max_exp_avg_sq.defined()) {
    adam.max_exp_avg_sq = torch::zeros_like(param);
  }
  return {adam.exp_avg, adam.exp_avg_sq, adam.max_exp_avg_sq};
}

template <class AdamOptions>
FusedAdamArgs AdamBase<AdamOptions>::args_of(
    const torch::optim::OptimizerOptions& group_options) const {
  const auto& options = static_cast<const Options&>(group_options);
  return {
      .lr = options.lr(),
      .beta1 = std::get<0>(options.betas()),
      .beta2 = std::get<1>(options.betas()),
      .eps = options.eps(),
      .weight_decay = options.weight_decay(),
      .amsgrad = options.amsgrad(),
      .decoupled_weight_decay = decoupled_weight_decay()};
}

template <class AdamOptions>
torch::Tensor AdamBase<AdamOptions>::rates_of(
    const torch::optim::OptimizerOptions& options,
    torch::Device device) const {
  return to_tensor(args_of(options), device);
}

template <class AdamOptions>
size_t AdamBase<AdamOptions>::moments_of(
    const torch::optim::OptimizerOptions& options) const {
  return static_cast<const Options&>(options).amsgrad() ? 3 : 2;
}

template <class AdamOptions>
void AdamBase<AdamOptions>::run_kernel(
    const TensorLists& lists,
    const torch::optim::OptimizerOptions& options,
    const GradState& grad_state) const {
  const FusedAdamArgs args = args_of(options);
  const auto moments = [&lists](size_t k) {
    return at::TensorList(lists.buffers[k].data(), lists.size);
  };
  fused_adam_(
      lists.kernel_tensors(),
      moments(0),
      moments(1),
      args.amsgrad ? moments(2) : at::TensorList(),
      args,
      grad_state,
      lists.rates);
}

template <class AdamOptions>
void AdamBase<AdamOptions>::write(
    torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AdamParamState, Options>(archive, *this);
}

template <class AdamOptions>
void AdamBase<AdamOptions>::read(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<AdamParamState, Options>(archive, *this);
}

template class AdamBase<torch::optim::AdamOptions>;
template class AdamBase<torch::optim::AdamWOptions>;

}  // namespace tern::optim
