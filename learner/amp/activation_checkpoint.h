#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

/// Keeps only the input of a module for the backward pass, and recomputes the
/// module's intermediate values there. This trades time for memory, for
/// networks that do not fit otherwise.
///
///   torch::nn::Sequential net(
///       ActivationCheckpoint(torch::nn::Sequential(...)),
///       ActivationCheckpoint(torch::nn::Sequential(...)),
///       torch::nn::Linear(128, 10));
///
/// The recomputation uses the same random numbers (dropout) and the same
/// autocast state as the first pass, and leaves buffers unchanged (BatchNorm
/// updates its statistics once per batch). Gradients are therefore
/// bit-identical to the plain module's. Names in the state dict are the same as
/// the module's. Like Python's `torch.utils.checkpoint` with
/// `use_reentrant=True`, where BatchNorm updates its statistics twice per
/// batch.
///
/// Second derivatives and `torch::autograd::grad` through this module are not
/// supported.
class ActivationCheckpointImpl : public torch::nn::Module {
 public:
  using Forward =
      std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;

  /// \param module  A module composed of other modules (a Sequential, a block).
  ///                Its forward takes one tensor and returns one tensor.
  /// \throws c10::ValueError if the module itself has parameters or buffers:
  ///         for a single layer, recomputing would not save memory.
  template <class M>
  explicit ActivationCheckpointImpl(const torch::nn::ModuleHolder<M>& module)
      : ActivationCheckpointImpl(
            module.ptr(),
            [](torch::nn::Module& m, const torch::Tensor& x) {
              return dynamic_cast<M&>(m).forward(x);
            }) {}
  ActivationCheckpointImpl(
      std::shared_ptr<torch::nn::Module> module,
      Forward forward);

  /// \param x  Floating-point, of any shape.
  /// \throws c10::Error in backward if it was started by
  ///         `torch::autograd::grad`.
  torch::Tensor forward(const torch::Tensor& x);

  void train(bool on = true) override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = {}) const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  // Cloneable calls this on its submodules.
  void clone_(
      torch::nn::Module& other,
      const std::optional<torch::Device>& device) override;

  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};
TORCH_MODULE(ActivationCheckpoint);

}  // namespace tern
