#include "tern/learner/optim/sgd.h"

#include <fmt/format.h>
#include <torch/optim/serialize.h>

namespace tern::optim {

std::vector<std::pair<std::string, torch::Tensor*>> SGDParamState::tensors() {
  return {{"step", &step}, {"momentum_buffer", &momentum_buffer}};
}

std::unique_ptr<torch::optim::OptimizerParamState> SGDParamState::clone()
    const {
  return std::make_unique<SGDParamState>(*this);
}

SGD::SGD(const Groups& groups, Options defaults)
    : FusedOptimizer(
          "tern::optim::SGD",
          groups,
          std::make_unique<Options>(defaults),
          /*decoupled_weight_decay=*/false) {
  for (const auto& group : param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    check_option(
        options.lr() >= 0,
        fmt::format("lr is {}; expected >= 0.", options.lr()));
    check_option(
        options.momentum() >= 0,
        fmt::format("momentum is {}; expected >= 0.", options.momentum()));
    check_option(
        options.weight_decay() >= 0,
        fmt::format(
            "weight_decay is {}; expected >= 0.",
            options.weight_decay()));
    check_option(
        !options.nesterov() ||
            (options.momentum() > 0 && options.dampening() == 0),
        fmt::format(
            "nesterov with momentum {} and dampening {}; expected momentum > 0 "
            "and dampening 0.",
            options.momentum(),
            options.dampening()));
  }
}

std::unique_ptr<FusedParamState> SGD::new_state() const {
  return std::make_unique<SGDParamState>();
}

SGD::Buffers SGD::prepare_buffers(
    FusedParamState& state,
    const torch::Tensor& param,
    const torch::optim::OptimizerOptions& options) const {
  if (static_cast<const Options&>(options).momentum() == 0) return {};
  auto& buffer = static_cast<SGDParamState&>(state).momentum_buffer;
  if (!buffer.defined()) {
    buffer = torch::zeros_like(param);
    // The buffer's first step sets it to the gradient, also when momentum
    // begins late; the kernel tells by the count.
    state.step = torch::zeros_like(state.step);
  }
  return {buffer};
}

FusedSgdArgs SGD::args_of(
    const torch::optim::OptimizerOptions& group_options) const {
  const auto& options = static_cast<const Options&>(group_options);
  return {
      .lr = options.lr(),
      .momentum = options.momentum(),
      .dampening = options.dampening(),
      .weight_decay = options.weight_decay(),
      .nesterov = options.nesterov(),
      .decoupled_weight_decay = decoupled_weight_decay()};
}

torch::Tensor SGD::rates_of(
    const torch::optim::OptimizerOptions& options,
    torch::Device device) const {
  return to_tensor(args_of(options), device);
}

size_t SGD::moments_of(const torch::optim::OptimizerOptions& options) const {
  return args_of(options).momentum == 0 ? 0 : 1;
}

void SGD::run_kernel(
    const TensorLists& lists,
    const torch::optim::OptimizerOptions& options,
    const GradState& grad_state) const {
  const FusedSgdArgs args = args_of(options);
  fused_sgd_(
      lists.kernel_tensors(),
      args.momentum == 0 ? at::TensorList()
                         : at::TensorList(lists.buffers[0].data(), lists.size),
      args,
      grad_state,
      lists.rates);
}

void SGD::write(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<SGDParamState, Options>(archive, *this);
}

void SGD::read(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<SGDParamState, Options>(archive, *this);
}

}  // namespace tern::optim
