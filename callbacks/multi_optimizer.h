#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/callback.h"
#include "tern/learner/learner_options.h"

namespace tern {

/// Trains parts of the model, each with its own optimizer and loss, as for GANs
/// or actor-critic. Like Lightning's multiple optimizers and fastai's
/// GANTrainer.
///
///   learn.add<MultiOptimizer>({
///       .parts = {
///           {.name = "critic", .loss = critic_loss, .lr = 4e-4},
///           {.name = "generator", .loss = generator_loss, .lr = 1e-4}}});
///   learn.fit(10);
///
/// In each training step every part takes its turn on the batch, in order:
/// loss, backward, clipping and a step of the part's optimizer. During the
/// turn, the parameters of the other parts require no gradient. With
/// `alternate`, only one part trains on each batch. With `to_amp` and `to_fp16`
/// all parts share one loss scale: an overflow skips only its part's step, and
/// the scale is updated once per batch.
///
/// The events from on_loss_begin to on_step are sent for each part, with the
/// part's `learn.gradients()`; on_step_end is sent once per batch. The training
/// loss is the sum of the parts' losses on the batch; each one is also logged,
/// for example as "critic_loss". Validation and inference use the model's
/// forward pass and the Learner's loss.
///
/// The parts are the layer groups, in their order: `fit(3, {1e-4, 4e-4})` sets
/// their learning rates, `fit(3)` uses each part's `lr`, schedules scale these,
/// and `freeze_to(1)` freezes the first part. Weight decay is the Learner's.
class MultiOptimizer final : public Callback {
 public:
  struct Part {
    /// Unique name, for messages; also the default of `modules`.
    std::string name;
    /// Computes the part's loss, 0-dim, from a batch as the model would receive
    /// it: on the device, and with 16-bit inputs after `to_fp16`.
    std::function<torch::Tensor(const Batch& batch)> loss;
    /// Unset: the Learner's.
    OptimizerFactory optimizer = {};
    /// Unset: the Learner's.
    std::optional<double> lr = {};
    /// Names of modules or single parameters, such as "critic" or "decoder.4".
    /// Unset: the module `name`.
    std::vector<std::string> modules = {};
    /// Consecutive batches per turn, >= 1; other than 1 only with `alternate`.
    int64_t steps = 1;
  };
  struct Options {
    /// Each parameter that requires a gradient must be in exactly one part.
    std::vector<Part> parts;
    /// The parts take turns, `steps` batches each; each fit starts with the
    /// first part. Frozen parts are skipped.
    bool alternate = false;
  };

  /// \throws c10::ValueError if an option is out of its range.
  explicit MultiOptimizer(Options options);
  ~MultiOptimizer() override;

  /// Add it before the first fit.
  /// \throws c10::ValueError if the parts do not match the model, or with
  ///         `to_cuda_graph`.
  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws c10::ValueError with GradientAccumulation, `to_parallel` or
  ///         `to_distributed({.shard_optimizer = true})`.
  void on_train_begin(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// Runs after the callbacks that decide which batches end with a step.
  int order() const override { return callback_order::kLast; }
  OptionValues option_values() const override;

 private:
  class Runner;
  std::shared_ptr<Runner> runner_;
};

}  // namespace tern
