#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/callbacks/precision/loss_scaling.h"

namespace tern {

/// Options of `Learner::to_amp`; the defaults are those of `torch.amp`.
struct AmpOptions {
  /// kHalf or kBFloat16. Unset: kHalf on CUDA, kBFloat16 on a CPU.
  std::optional<torch::ScalarType> dtype = {};
  /// The loss scale. Unset: GradScaler's defaults with kHalf and no scaling
  /// with kBFloat16, which has fp32's range. Its `device` is ignored.
  std::optional<GradScalerOptions> scaler = {};
  /// Scales all gradients down so that their joint L2 norm is at most this.
  std::optional<double> clip = {};
  /// Converts the outputs to fp32 for the loss, whatever its operations are.
  bool loss_fp32 = true;
  /// False: validation and prediction run in fp32.
  bool amp_in_valid = true;
};

/// Trains with autocast and a GradScaler while the weights stay fp32; what
/// `Learner::to_amp` adds. Forward and loss run inside an AutocastGuard,
/// backward and step outside.
class Amp final : public LossScaling {
 public:
  /// \param device  That of the model.
  /// \throws c10::ValueError for an option out of its range.
  explicit Amp(torch::Device device, const AmpOptions& options = {});

  void forward(Learner& learn, c10::function_ref<void()> compute) override;
  std::string precision_text() const override;

 private:
  static Settings settings_for(torch::Device device, const AmpOptions& options);

  bool amp_in_valid_;
};

}  // namespace tern
