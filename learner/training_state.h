#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>

#include "tern/learner/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/load_plan.h"

namespace tern {

/// LibTorch's generators of random numbers by name: "cpu", "cuda:0", ...
std::vector<std::pair<std::string, at::Generator>> default_generators();

/// A part of what training changes in a Learner.
struct StatePart {
  /// What its entries in a checkpoint begin with: "callbacks/Ema 0", "random",
  /// or nothing. "model" and "optimizer" have files of their own.
  std::string name;
  /// May share memory with the Learner.
  std::function<StateDict()> capture;
  /// Puts back what `capture` gave. \throws c10::ValueError, CheckpointError if
  /// it does not fit.
  std::function<void(const StateDict&)> restore;
};

/// Between a Learner and its Checkpoint. Private to learner/.
class TrainingState {
 public:
  /// The one list of a Learner's state, in the order in which it is put back.
  /// Checkpoints, the snapshots of trials and `resume` go over it.
  static std::vector<StatePart> parts(Learner& learner);

  /// Where the training is.
  static StatePart progress_part(Learner& learner);

  /// Where a fit was.
  struct Progress {
    int64_t epoch = 0, batch = 0;  // to be made next
    bool stopped = false;          // a callback had seen enough
  };
  static Progress progress(const Checkpoint& checkpoint);

  /// Parameters (masters where there are some) and buffers by Python's names;
  /// 16-bit buffers as fp32 copies, all else in the model's own memory.
  static std::vector<ModelTensor> model_tensors(const Learner& learner);
  /// Where a state dict goes: the same without copies.
  static std::vector<ModelTensor> load_targets(const Learner& learner);
  /// Writes them, and masters into the 16-bit weights.
  static void apply(const LoadPlan& plan, Learner& learner);
  static StateDict optimizer_state(Learner& learner);
  static void load_optimizer_state(Learner& learner, const StateDict& state);
  static std::string optimizer_kind(Learner& learner);

  /// Copies everything to the CPU; nothing of it changes with the Learner.
  static Checkpoint capture(Learner& learner);

  /// What the data are, and a fit, for checkpoints to compare.
  static std::map<std::string, std::string> data_settings(Learner& learner);
  static std::map<std::string, std::string>
  fit_settings(Learner& learner, int64_t epochs, const LearningRates& lr);
  /// The same without a fit, with the optimizer, the precision and a
  /// fingerprint of the data.
  static std::map<std::string, std::string> settings(Learner& learner);
  static int64_t trained_parameters(Learner& learner);
  /// What of the checkpoint this Learner could not take over, as sentences.
  static std::vector<std::string> differences(
      Learner& learner,
      const Checkpoint& checkpoint);
  /// The same for the fit that has begun: its length, rates and callbacks.
  static std::vector<std::string> fit_differences(
      Learner& learner,
      const Checkpoint& checkpoint);
  /// The same for a fit that was complete, of its length and rates.
  static std::vector<std::string> differences_of_done_fit(
      const std::map<std::string, std::string>& fit_settings,
      const Checkpoint& checkpoint);

  /// What the callbacks' `log_state` gave; that of one of them, once.
  static StateDict logs(const Checkpoint& checkpoint);
  static std::optional<StateDict> take_log(
      Learner& learner,
      const Callback& callback);

  /// Weights, buffers and the optimizer. \throws c10::ValueError if they do not
  /// fit; the Learner then is as it was.
  static void apply_model(Learner& learner, const Checkpoint& checkpoint);
  /// The other parts. \throws as load_state_dict of the callbacks.
  static void apply_training(Learner& learner, const Checkpoint& checkpoint);
};

}  // namespace tern
