#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include <torch/types.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tern {

/// Runs matrix products and convolutions in 16 bits while it lives, and losses
/// in fp32: PyTorch's `torch.autocast`. Weights stay fp32.
///
///   torch::Tensor loss;
///   {
///     tern::AutocastGuard autocast(device);
///     loss = loss_fn(net->forward(x), y);
///   }
///   loss.backward();  // outside: it replays in the types of the forward
///
/// It is bound to its scope and its thread, nests, and puts everything back
/// when an exception passes. A new thread begins without autocast; `amp::wrap`
/// carries it over. Do not step an optimizer inside: the 16-bit copies of the
/// weights are kept until the outermost enabled guard ends, and would be stale.
///
/// What is cast differs between CPU and CUDA, and tensors of the other device
/// type are left alone: give the device on which the model runs.
class AutocastGuard {
 public:
  /// \param device  CPU or CUDA. For CUDA on a machine without it, warns once
  ///                and does nothing, as Python does.
  /// \param dtype   kHalf or kBFloat16; unset: the device's current default,
  ///                which is kBFloat16 on a CPU and kHalf on CUDA.
  /// \param enabled False: switches autocast off in this scope.
  /// \param cache_enabled  Keep the 16-bit copies of weights that are used more
  ///                than once. The copies are shared by all threads, so give
  ///                false in every thread but one.
  /// \throws c10::ValueError for another device or dtype; nothing has changed
  ///         then. (Python warns and goes on in fp32; LibTorch takes any.)
  explicit AutocastGuard(
      torch::Device device,
      std::optional<torch::ScalarType> dtype = {},
      bool enabled = true,
      bool cache_enabled = true);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  torch::DeviceType device_;
  torch::ScalarType dtype_, outer_dtype_;
  bool outer_enabled_, outer_cache_enabled_;
  bool uses_cache_, has_own_cache_;
};

namespace amp {

/// How autocast is set in the calling thread, for one type of device.
struct AutocastState {
  explicit AutocastState(torch::DeviceType device);

  bool enabled;
  torch::ScalarType dtype;
};

/// Carries the autocast state of here and now into whatever thread calls the
/// result, without the cache of weights.
///
///   std::thread worker(tern::amp::wrap([&] { y = net->forward(x); }));
template <class F>
auto wrap(F function) {
  return [
    cpu = AutocastState(torch::kCPU),
    cuda = AutocastState(torch::kCUDA),
    function = std::move(function)
  ](auto&&... arguments) mutable -> decltype(auto)
           requires std::invocable<F&, decltype(arguments)...>
  {
    const AutocastGuard on_cpu(torch::kCPU, cpu.dtype, cpu.enabled, false);
    const AutocastGuard on_cuda(torch::kCUDA, cuda.dtype, cuda.enabled, false);
    return function(std::forward<decltype(arguments)>(arguments)...);
  };
}

// ---- For one's own torch::autograd::Function ----
//
// Its backward usually runs outside the guard, where nothing casts: a product
// of a 16-bit gradient and a saved fp32 tensor then fails. So forward notes how
// autocast was set, and backward sets it again.
//
//   static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
//     tern::amp::save_autocast(ctx, a.device());
//     ...
//   static variable_list backward(AutogradContext* ctx, variable_list grads) {
//     tern::amp::BackwardGuard autocast(ctx, grads[0].device());
//
// A function that needs fp32 inside says so at the beginning of forward:
//
//     tern::amp::CastInputs cast(a.device(), torch::kFloat);
//     a = cast(a);
//     tern::amp::save_autocast(ctx, a.device());

/// In forward: notes in `ctx` how autocast is set. Python: `custom_fwd`.
void save_autocast(torch::autograd::AutogradContext* ctx, torch::Device device);

/// In backward: autocast as it was in forward. Python: `custom_bwd`.
/// \throws c10::Error if forward did not call `save_autocast`.
class BackwardGuard {
 public:
  BackwardGuard(torch::autograd::AutogradContext* ctx, torch::Device device);

 private:
  AutocastGuard guard_;
};

/// In forward, before `save_autocast`: when autocast is on, switches it off
/// while it lives, and casts what it is given. When autocast is off, it does
/// nothing. Python: `custom_fwd(cast_inputs=...)`.
class CastInputs {
 public:
  /// \param dtype  Any floating type.
  CastInputs(torch::Device device, torch::ScalarType dtype);

  /// `tensor` in the wanted type, if it is a floating one of this device type
  /// and not kDouble; an undefined tensor is returned as it is.
  torch::Tensor operator()(const torch::Tensor& tensor) const;

 private:
  torch::DeviceType device_;
  torch::ScalarType dtype_;
  bool casts_;
  AutocastGuard off_;
};

}  // namespace amp
}  // namespace tern
