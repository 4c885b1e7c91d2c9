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

/// Trains parts of the model, each with an optimizer and a loss of its own:
/// GANs, actor and critic. Lightning's several optimizers, fastai's GANTrainer.
///
///   learn.add<MultiOptimizer>({
///       .parts = {
///           {.name = "critic", .loss = critic_loss, .lr = 4e-4},
///           {.name = "generator", .loss = generator_loss, .lr = 1e-4}}});
///   learn.fit(10);
///
/// A training step gives every part its turn on the batch, in their order:
/// loss, backward, clipping, the part's optimizer. Meanwhile the parameters of
/// the other parts require no gradient. With `alternate` a batch is one part's
/// alone. After `to_amp` and `to_fp16` there is one loss scale: an overflow
/// skips the step of that part only, and the scale is updated once a batch.
///
/// on_loss_begin to on_step come for each part, with that part's
/// `learn.gradients()`; on_step_end once a batch. The training loss is the sum
/// of the parts' losses on the batch; each is logged too, as "critic_loss".
/// Validation and predictions are the model's own forward pass and the
/// Learner's loss.
///
/// The parts are the layer groups, in their order: `fit(3, {1e-4, 4e-4})` gives
/// them learning rates, `fit(3)` each its own, schedules scale these,
/// `freeze_to(1)` leaves the first one out. Weight decay is the Learner's.
class MultiOptimizer final : public Callback {
 public:
  struct Part {
    /// Unique, for messages; also the default of `modules`.
    std::string name;
    /// The part's loss, 0-dim, of a batch as the model would get it: on the
    /// device, after `to_fp16` with 16-bit inputs.
    std::function<torch::Tensor(const Batch& batch)> loss;
    /// Unset: the Learner's.
    OptimizerFactory optimizer = {};
    /// Unset: the Learner's.
    std::optional<double> lr = {};
    /// By the names of modules or single parameters, as in "critic" or
    /// "decoder.4". Unset: the module `name`.
    std::vector<std::string> modules = {};
    /// Batches in a row, >= 1; others than 1 with `alternate` only.
    int64_t steps = 1;
  };
  struct Options {
    /// All parameters that require a gradient, each in one part.
    std::vector<Part> parts;
    /// The parts take turns, `steps` batches each, from the first one in each
    /// fit. Frozen parts have no turn.
    bool alternate = false;
  };

  /// \throws c10::ValueError if an option is out of its range.
  explicit MultiOptimizer(Options options);
  ~MultiOptimizer() override;

  /// Before the first fit.
  /// \throws c10::ValueError if the parts are not those of the model, or beside
  ///         `to_cuda_graph`.
  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws c10::ValueError beside GradientAccumulation, `to_parallel` and
  ///         `to_distributed({.shard_optimizer = true})`.
  void on_train_begin(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// After those that decide how batches make steps.
  int order() const override { return callback_order::kLast; }
  OptionValues option_values() const override;

 private:
  class Runner;
  std::shared_ptr<Runner> runner_;
};

}  // namespace tern
