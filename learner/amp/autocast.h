#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include <torch/types.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tern {

/// While an instance exists, matrix products and convolutions run in 16 bits
/// and losses in fp32: PyTorch's `torch.autocast`. Weights stay fp32.
///
///   torch::Tensor loss;
///   {
///     tern::AutocastGuard autocast(device);
///     loss = loss_fn(net->forward(x), y);
///   }
///   loss.backward();  // outside: uses the dtypes of the forward pass
///
/// Guards apply to their scope and thread, can be nested, and also restore the
/// previous state after an exception. A new thread starts without autocast;
/// `amp::wrap` transfers the state. Do not step an optimizer inside the scope:
/// the 16-bit copies of the weights are cached until the outermost enabled
/// guard ends, and would become stale.
///
/// CPU and CUDA cast different operations, and tensors of the other device type
/// are not cast: pass the device on which the model runs.
class AutocastGuard {
 public:
  /// \param device  CPU or CUDA. For CUDA on a machine without it, warns once
  ///                and does nothing, as in Python.
  /// \param dtype  kHalf or kBFloat16. Unset: the device's current default,
  ///               which is kBFloat16 on a CPU and kHalf on CUDA.
  /// \param enabled  False: disables autocast in this scope.
  /// \param cache_enabled  Cache the 16-bit copies of weights that are used
  ///                       more than once. The cache is shared by all threads,
  ///                       so pass false in every thread but one.
  /// \throws c10::ValueError for any other device or dtype; the state is then
  ///         unchanged. (Python warns and continues in fp32; LibTorch accepts
  ///         any.)
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

/// The autocast state of the calling thread for one device type.
struct AutocastState {
  explicit AutocastState(torch::DeviceType device);

  bool enabled;
  torch::ScalarType dtype;
};

/// Captures the current autocast state, without the weight cache, and applies
/// it in the thread that calls the returned function.
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

// ---- For custom torch::autograd::Function classes ----
//
// The backward of such a function usually runs outside the guard, without
// autocast: a product of a 16-bit gradient and a saved fp32 tensor then fails.
// Therefore forward saves the autocast state, and backward restores it.
//
//   static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
//     tern::amp::save_autocast(ctx, a.device());
//     ...
//   static variable_list backward(AutogradContext* ctx, variable_list grads) {
//     tern::amp::BackwardGuard autocast(ctx, grads[0].device());
//
// A function that needs fp32 inputs requests them at the beginning of forward:
//
//     tern::amp::CastInputs cast(a.device(), torch::kFloat);
//     a = cast(a);
//     tern::amp::save_autocast(ctx, a.device());

/// In forward: saves the autocast state in `ctx`. Python: `custom_fwd`.
void save_autocast(torch::autograd::AutogradContext* ctx, torch::Device device);

/// In backward: restores the autocast state of forward. Python: `custom_bwd`.
/// \throws c10::Error if forward did not call `save_autocast`.
class BackwardGuard {
 public:
  BackwardGuard(torch::autograd::AutogradContext* ctx, torch::Device device);

 private:
  AutocastGuard guard_;
};

/// In forward, before `save_autocast`: if autocast is enabled, disables it for
/// this object's lifetime and casts inputs. If autocast is disabled, does
/// nothing. Python: `custom_fwd(cast_inputs=...)`.
class CastInputs {
 public:
  /// \param dtype  Any floating-point dtype.
  CastInputs(torch::Device device, torch::ScalarType dtype);

  /// Converts `tensor` to `dtype` if it is a floating-point tensor of this
  /// device type and not kDouble. Other tensors, and undefined ones, are
  /// returned unchanged.
  torch::Tensor operator()(const torch::Tensor& tensor) const;

 private:
  torch::DeviceType device_;
  torch::ScalarType dtype_;
  bool casts_;
  AutocastGuard off_;
};

}  // namespace amp
}  // namespace tern
