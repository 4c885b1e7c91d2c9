#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/amp/keep_fp32.h"
#include "tern/learner/precision_policy.h"

namespace tern {

class MasterWeights;  // learner/amp/master_weights.h

/// Options of `Learner::to_fp16`, which trains a half or bfloat16 model with
/// fp32 master weights and converts floating-point inputs. Names and defaults
/// are fastai v1's where it has them.
struct MixedPrecisionOptions {
  // ---- Loss scale (bfloat16 uses none) ----

  /// A fixed loss scale, for example 512; steps that overflow are skipped.
  /// Unset: a dynamic loss scale, set by the fields below.
  std::optional<double> loss_scale = {};
  /// Initial dynamic scale. Too high costs a few skipped steps; too low
  /// silently loses small gradients, so start high.
  double init_scale = 65536;
  /// Steps without overflow before the scale doubles; an overflow halves it.
  int64_t growth_interval = 1000;
  /// Upper bound of the scale; the lower bound is 1.
  double max_scale = 16777216;

  /// Scales all gradients down so that their joint L2 norm, over all groups, is
  /// at most this. Like a GradientClip by norm, but within the step of the
  /// fused optimizer, which saves a pass over the gradients. Do not use both.
  std::optional<double> clip = {};
  /// Converts the outputs to fp32 for the loss.
  bool loss_fp32 = true;
  /// Keeps the fp32 master weights in one block of memory.
  bool flat_master = false;
  /// False (to_bf16 only): keeps no fp32 copies, which saves four bytes per
  /// parameter. The fused optimizer computes each step in fp32 and rounds it
  /// stochastically into the bfloat16 weights, so that updates smaller than
  /// half an ulp of the weight are preserved on average. A resumed run draws
  /// the same random numbers.
  bool master_weights = true;
  /// On a CPU, to_fp16 uses bfloat16, because fp16 convolutions are 50 to 100
  /// times slower there than fp32 convolutions. True: uses fp16 anyway.
  bool force_fp16 = false;

  /// Modules whose weights stay in fp32 and that compute in fp32. Given as
  /// names in the state dict ("head", including its submodules) or globs
  /// ("layer*.norm"); `learn.audit_precision()` suggests which. Their inputs
  /// are converted to fp32; computations on their outputs stay in fp32 up to
  /// the next 16-bit layer (learner/amp/keep_fp32.h). "input": the model's
  /// inputs are not converted.
  std::vector<std::string> keep_fp32 = {};
};

/// Trains in 16 bits; added to a Learner by `to_fp16`, `to_bf16` and `to_amp`.
///
/// to_fp16 and to_bf16 convert the model when they are called: parameters and
/// buffers become 16-bit, except in BatchNorm and the layers in `keep_fp32`,
/// and the optimizer steps fp32 master weights. to_amp keeps the weights in
/// fp32 and computes forward and loss under autocast. Removing the callback
/// restores the model's fp32 weights, which then equal the master weights
/// exactly. Its buffers are also restored exactly, except for values that the
/// model has written in 16 bits.
///
/// | event             | to_fp16, to_bf16               | to_amp               |
/// |-------------------|--------------------------------|----------------------|
/// | on_batch_begin    | floating inputs become 16-bit  |                      |
/// | forward           |                                | runs under autocast  |
/// | on_loss_begin     | outputs become fp32            | outputs become fp32  |
/// | on_backward_begin | loss_grad times the loss scale | the same             |
/// | step              | overflow check, unscale into   | overflow check,      |
/// |                   | the master weights, clip, step | unscale, step or     |
/// |                   | or skip, copy to the model     | skip                 |
/// | on_step_end       | the loss scale is updated      | the same             |
/// | on_batch_end      | written buffers become fp32    |                      |
///
/// With a fused optimizer (tern::optim) the whole step is one check and one
/// kernel, and never synchronizes with the device. The loss scale changes only
/// at steps, not while gradients are accumulated; bfloat16 needs none.
///
///   Learner(data, model, {.callbacks = {
///       std::make_shared<MixedPrecision>(torch::kHalf)}});
class MixedPrecision : public PrecisionPolicy {
 public:
  /// Like `to_fp16` and `to_bf16`.
  /// \param dtype  kHalf or kBFloat16, on any device.
  /// \throws c10::ValueError for any other dtype, or if an option is out of
  ///         range.
  explicit MixedPrecision(
      torch::ScalarType dtype = torch::kHalf,
      const MixedPrecisionOptions& options = {});
  /// Like `to_amp`.
  /// \param device  The device that the model computes on.
  MixedPrecision(torch::Device device, const AmpOptions& options);

  /// \throws c10::ValueError if the Learner already has a MixedPrecision, or if
  ///         `keep_fp32` names a module that the model does not have.
  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void forward(Learner& learn, c10::function_ref<void()> compute) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void unscale(Learner& learn) override;
  void abandon(Learner& learn, bool keeps_gradients) override;
  StepResult step(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;

  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

  double loss_scale() const override;
  torch::Tensor loss_scale_record() const override;
  /// \throws c10::ValueError with `keep_fp32`.
  void check_parallel() const override;
  std::string precision_text() const override;
  /// "MixedPrecision" or "Amp".
  std::string name() const override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kMixedPrecision; }

  /// Disabled without a loss scale, as in bfloat16.
  GradScaler& scaler() { return scaler_; }
  torch::ScalarType dtype() const { return settings_.dtype; }
  OptionValues option_values() const override;

 private:
  struct Settings {
    torch::ScalarType dtype = torch::kHalf;
    GradScalerOptions scaler = {};
    std::optional<double> fixed_scale = {};  // unset: dynamic
    std::optional<double> clip = {};
    bool loss_fp32 = true;
    std::vector<std::string> keep_fp32 = {};
    // to_amp: autocast instead of a converted model.
    bool autocast = false;
    bool autocast_in_valid = true;
    // to_fp16, to_bf16: a converted model.
    bool converts_inputs = false;
    bool flat_masters = false;
    bool has_masters = true;
  };

  explicit MixedPrecision(const Settings& settings);
  static Settings settings_of(
      torch::ScalarType dtype,
      const MixedPrecisionOptions& options);
  static Settings settings_of(torch::Device device, const AmpOptions& options);
  bool clips_within_the_step(const torch::optim::Optimizer& optimizer) const;

  Settings settings_;
  GradScaler scaler_;
  KeptParameters kept_;                     // parameters of keep_fp32
  std::shared_ptr<MasterWeights> masters_;  // null with autocast
  bool is_unscaled_ = false;                // this step's gradients
};

/// Former name of the class; kept so that older programs compile.
using LossScaling = MixedPrecision;

/// Converts 16-bit outputs to fp32, for the loss.
void outputs_to_fp32(Tensors& outputs);

}  // namespace tern
