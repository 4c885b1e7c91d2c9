#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/checkpoint/checkpoint.h"

namespace tern {

struct SaveCheckpointOptions {
  /// The run's folder; relative to LearnerOptions::path.
  std::filesystem::path folder = "checkpoints";
  /// Saves at the end of every so many epochs, after every so many batches, and
  /// whenever so much time has passed. 0: not for that reason.
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  std::chrono::seconds every{0};
  /// How many to keep; older ones are removed once a newer one is complete. 0:
  /// all.
  int64_t keep = 3;
  /// Syncs each checkpoint to the disk. Without it a power cut, but not a
  /// killed program, may lose the newest one.
  bool durable = true;
  /// While a fit runs, SIGTERM and SIGINT finish the step, save and end the fit
  /// as FitResult::interrupted; afterwards the program's own handlers are back.
  /// A second signal goes to them at once.
  bool on_signals = false;
};

/// Saves checkpoints while a training runs, so that it can be killed at any
/// moment and resumed exactly:
///
///   learn.resume("run", {.if_exists = true});
///   learn.add<tern::SaveCheckpoint>({.folder = "run"});
///   learn.fit_one_cycle(10);
///
/// A save copies the state, which is written while training continues. A run
/// that was resumed from an earlier step than its folder's last puts the later
/// ones aside as `step_<n>.replaced-<i>` with its first save: they are of a
/// branch that was given up.
/// `learn.request_stop()` saves too, once the step is finished. A save that
/// fails ends the training with its error, at the next save or at the end of
/// the fit. Weights with a NaN are not saved, so that they do not replace a
/// good checkpoint; the sink gets a warning.
class SaveCheckpoint final : public Callback {
 public:
  using Options = SaveCheckpointOptions;

  explicit SaveCheckpoint(Options options = {});

  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws IoError if the folder cannot be written, CheckpointError if
  ///         another program uses it, or if it holds the checkpoints of another
  ///         training.
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  void on_interrupt(Learner& learn) override;
  /// After all others.
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveCheckpoint; }

  /// Waits until the last checkpoint is written. \throws what writing it threw.
  /// \return whether there was one to wait for, and it is on the disk now.
  bool wait(Learner& learn);
  OptionValues option_values() const override;

 private:
  // Of a save that has ended.
  struct Written {
    int64_t step;
    std::string diverged = {};  // a tensor with a NaN: nothing was written
    std::vector<std::filesystem::path> aside = {};
  };

  void take_folder(Learner& learn);
  bool is_time(Learner& learn) const;
  void save(Learner& learn);

  Options options_;
  std::filesystem::path folder_;
  std::unique_ptr<RunLock> lock_;
  std::shared_ptr<Callback> signals_;  // with `on_signals`
  std::future<Written> writing_;
  // Of the last one in the folder that is of this branch of the run.
  int64_t branch_step_ = 0;
  std::chrono::steady_clock::time_point last_save_;
  bool is_due_ = false;  // once the step is complete
};

}  // namespace tern
