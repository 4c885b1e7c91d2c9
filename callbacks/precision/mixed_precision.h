#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/callbacks/precision/loss_scaling.h"

namespace tern {

/// Options of `Learner::to_fp16`, which trains a half or bfloat16 model with
/// fp32 master weights and converts floating inputs; names and defaults of
/// fastai v1's, where it has them.
struct MixedPrecisionOptions {
  // ---- Loss scale (bfloat16 uses none) ----

  /// A fixed loss scale, for example 512; a step that overflows is skipped.
  /// Unset: dynamic, as the fields below say.
  std::optional<double> loss_scale = {};
  /// Initial dynamic scale. Too high costs a few skipped steps; too low
  /// silently loses small gradients, so start high.
  double init_scale = 65536;
  /// Steps without overflow before the scale doubles; an overflow halves it.
  int64_t growth_interval = 1000;
  /// Upper bound of the scale; the lower bound is 1.
  double max_scale = 16777216;

  /// Scales all gradients down so that their joint L2 norm, over all groups, is
  /// at most this.
  std::optional<double> clip = {};
  /// Converts the outputs to fp32 for the loss.
  bool loss_fp32 = true;
  /// Keeps the fp32 master weights in one block of memory.
  bool flat_master = false;
  /// False, for to_bf16: no fp32 copies, four bytes a parameter less. The fused
  /// optimizer computes each step in fp32 and rounds it into the bfloat16
  /// weights stochastically, which keeps updates smaller than half a unit of
  /// the weight on average; a resumed training has the same random numbers.
  bool master_weights = true;
  /// On a CPU, to_fp16 uses bfloat16, because fp16 convolutions are 50 to 100
  /// times slower there than fp32 ones. True insists on fp16.
  bool force_fp16 = false;

  /// Modules whose weights stay fp32 and that compute in fp32, by their names
  /// in the state dict ("head", with all that is in it) or globs of them
  /// ("layer*.norm"); `learn.audit_precision()` says which. What they are given
  /// is converted to fp32, and their results stay so until the next 16-bit
  /// layer. "input": the model's inputs are not converted.
  std::vector<std::string> keep_fp32 = {};
};

/// What `Learner::to_fp16` and `to_bf16` add. By itself, it converts the model
/// when it is added, and gives it back its fp32 weights when it is removed.
///
///   Learner(data, model, {.callbacks = {
///       std::make_shared<MixedPrecision>(torch::kHalf)}});
class MixedPrecision final : public LossScaling {
 public:
  /// \param dtype  kHalf or kBFloat16, on any device.
  /// \throws c10::ValueError for another dtype, or options out of range.
  explicit MixedPrecision(
      torch::ScalarType dtype = torch::kHalf,
      const MixedPrecisionOptions& options = {});

  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  std::string precision_text() const override;

 private:
  bool has_flat_masters_, has_masters_, converts_inputs_;
};

}  // namespace tern
