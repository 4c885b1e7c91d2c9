#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

/// A module that keeps its input alone for backward, and computes what is in
/// between a second time there: memory for time, for networks that do not fit.
///
///   torch::nn::Sequential net(
///       ActivationCheckpoint(torch::nn::Sequential(...)),
///       ActivationCheckpoint(torch::nn::Sequential(...)),
///       torch::nn::Linear(128, 10));
///
/// The second time sees the random numbers of the first (dropout), its
/// autocast, and leaves buffers as they are (a BatchNorm counts a batch once),
/// so gradients are those of the module by itself, bit for bit. Names in the
/// state dict are the module's own. Python: `torch.utils.checkpoint`, in its
/// reentrant form, which has the last two points wrong.
///
/// Second derivatives and `torch::autograd::grad` do not go through it.
class ActivationCheckpointImpl : public torch::nn::Module {
 public:
  using Forward =
      std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;

  /// \param module  Made of other modules (a Sequential, a block); its forward
  ///                takes a tensor and returns one.
  /// \throws c10::ValueError if it has parameters or buffers of its own: a
  ///         single layer keeps nothing that would be worth it.
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

  /// \param x  Floating, of any shape.
  /// \throws c10::Error in backward if `torch::autograd::grad` asked for it.
  torch::Tensor forward(const torch::Tensor& x);

  void train(bool on = true) override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = {}) const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  // What Cloneable calls on the modules that it is made of.
  void clone_(
      torch::nn::Module& other,
      const std::optional<torch::Device>& device) override;

  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};
TORCH_MODULE(ActivationCheckpoint);

}  // namespace tern
