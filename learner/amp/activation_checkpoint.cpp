#include "tern/learner/amp/activation_checkpoint.h"

#include <mutex>
#include <ostream>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/keep_fp32.h"

namespace tern {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor random_state(torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(torch::Device device, const Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// The state that backward needs in addition to the input.
struct Kept final : torch::CustomClassHolder {
  std::shared_ptr<torch::nn::Module> module;
  ActivationCheckpointImpl::Forward forward;
  Tensor random;
  bool input_has_grad = false;
  std::optional<KeepFp32Guard::Point> fp32;
};

// Repeats the forward pass in the state of the first pass, and restores the
// current state afterwards.
Tensor forward_again(const Kept& kept, AutogradContext* ctx, const Tensor& x) {
  const Tensor random = random_state(x.device());
  std::vector<std::pair<Tensor, Tensor>> buffers;
  for (const Tensor& buffer : kept.module->buffers()) {
    buffers.emplace_back(buffer, buffer.clone());
  }
  const auto restore = c10::make_scope_exit([&] {
    // Not tracked as a change, so that tensors of a BatchNorm that the graph
    // has saved stay valid.
    const at::AutoDispatchBelowADInplaceOrView untracked;
    for (auto& [buffer, before] : buffers) buffer.copy_(before);
    set_random_state(x.device(), random);
  });
  set_random_state(x.device(), kept.random);
  const amp::BackwardGuard autocast(ctx, x.device());
  std::optional<KeepFp32Guard> fp32;
  if (kept.fp32) fp32.emplace(*kept.fp32, x);
  const torch::AutoGradMode with_grad(true);
  return kept.forward(*kept.module, x);
}

// `anchor`, any tensor that requires a gradient, makes autograd call backward
// even if the module's input requires none.
struct Recompute : torch::autograd::Function<Recompute> {
  static Tensor forward(
      AutogradContext* ctx,
      const c10::intrusive_ptr<Kept>& kept,
      const Tensor& x,
      const Tensor& /*anchor*/) {
    amp::save_autocast(ctx, x.device());
    ctx->save_for_backward({x});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->forward(*kept->module, x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(
        torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
        "[ActivationCheckpoint] torch::autograd::grad does not support "
        "recomputed modules; call backward(), or omit the "
        "ActivationCheckpoint.");
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(
        ctx->saved_data["kept"].toCapsule());
    const Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(
        kept->input_has_grad);
    const Tensor y = forward_again(*kept, ctx, x);
    torch::autograd::backward({y}, {grads[0]});
    return {Tensor(), x.grad(), Tensor()};
  }
};

// Returns one of the trainable parameters; undefined if there are none.
Tensor any_trained(const torch::nn::Module& module) {
  for (const Tensor& p : module.parameters()) {
    if (p.requires_grad()) return p;
  }
  return {};
}

}  // namespace

ActivationCheckpointImpl::ActivationCheckpointImpl(
    std::shared_ptr<torch::nn::Module> module,
    Forward forward)
    : torch::nn::Module("ActivationCheckpoint"),
      module_(std::move(module)),
      forward_(std::move(forward)) {
  TORCH_CHECK_VALUE(
      module_ && forward_,
      "[ActivationCheckpoint] the module is null; expected a module with "
      "submodules, such as a Sequential.");
  TERN_CHECK_VALUE(
      module_->parameters(/*recurse=*/false).empty() &&
          module_->buffers(/*recurse=*/false).empty(),
      "[ActivationCheckpoint] {} has parameters or buffers of its own; "
      "expected a module with submodules only, such as a Sequential. Wrap it "
      "in a Sequential, together with its neighbors.",
      module_->name());
  for (const auto& child : module_->named_children()) {
    register_module(child.key(), child.value());
  }
}

torch::Tensor ActivationCheckpointImpl::forward(const torch::Tensor& x) {
  const Tensor anchor = any_trained(*module_);
  const bool is_trained = x.requires_grad() || anchor.defined();
  if (!is_trained || !torch::GradMode::is_enabled()) {
    return forward_(*module_, x);
  }
  const auto kept = c10::make_intrusive<Kept>();
  kept->module = module_;
  kept->forward = forward_;
  kept->random = random_state(x.device());
  kept->input_has_grad = x.requires_grad();
  kept->fp32 = KeepFp32Guard::point(x);
  return Recompute::apply(kept, x, anchor.defined() ? anchor : x);
}

void ActivationCheckpointImpl::train(bool on) {
  torch::nn::Module::train(on);
  module_->train(on);  // which reads its own flag
}

std::shared_ptr<torch::nn::Module> ActivationCheckpointImpl::clone(
    const std::optional<torch::Device>& device) const {
  return std::make_shared<ActivationCheckpointImpl>(
      module_->clone(device),
      forward_);
}

void ActivationCheckpointImpl::clone_(
    torch::nn::Module& other,
    const std::optional<torch::Device>& device) {
  *this = dynamic_cast<ActivationCheckpointImpl&>(*other.clone(device));
}

void ActivationCheckpointImpl::pretty_print(std::ostream& stream) const {
  stream << "ActivationCheckpoint of " << module_->name();
}

}  // namespace tern
