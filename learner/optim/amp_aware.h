#pragma once

#include <vector>

#include <torch/types.h>

namespace tern {

/// An optimizer that reads scaled gradients itself and obeys an overflow flag
/// on the device, so that no step waits for the host. `GradScaler::step` finds
/// it by `dynamic_cast`; `tern::optim::{SGD, Adam, AdamW}` implement it.
///
/// Master form: the optimizer owns fp32 masters and the model computes with
/// their rounded half or bfloat16 twins, the weights. Gradients then arrive at
/// the weights, and every step writes the new masters, rounded, into them.
class AmpAware {
 public:
  virtual ~AmpAware() = default;

  /// One step. Nothing changes, not even a step count, when `found_inf` is set.
  ///
  /// \param grad_scale  0-dim kFloat: gradients are divided by it. Undefined:
  ///                    they are already unscaled.
  /// \param found_inf   0-dim kFloat: anything but 0 skips the step. Undefined:
  ///                    never skip.
  virtual void step_amp(
      const torch::Tensor& grad_scale,
      const torch::Tensor& found_inf) = 0;

  /// The gradients that the next step reads, defined ones only. A master with
  /// a gradient of its own is read from there, else from its weight.
  virtual std::vector<torch::Tensor> gradients() const = 0;

  /// Begins the master form: parameter `masters[i]` of this optimizer gets its
  /// gradient from `weights[i]`, and a step writes `weights[i]`. Empty lists
  /// end it.
  ///
  /// \param masters  kFloat, each one a parameter of this optimizer.
  /// \param weights  kHalf or kBFloat16, shape and strides of the master.
  /// \throws c10::ValueError if the lists disagree.
  virtual void set_weights(
      const std::vector<torch::Tensor>& masters,
      const std::vector<torch::Tensor>& weights) = 0;

  /// Moves every weight's gradient into a fp32 gradient of its master, so that
  /// `GradScaler::unscale_`, clipping and logging see fp32. Costs one more pass
  /// over the gradients; does nothing without the master form.
  virtual void move_gradients_to_masters() = 0;
};

}  // namespace tern
