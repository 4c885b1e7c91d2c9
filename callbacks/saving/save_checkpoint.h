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
  /// Folder of the run; relative to LearnerOptions::path.
  std::filesystem::path folder = "checkpoints";
  /// Save at the end of every `every_epochs` epochs, after every `every_steps`
  /// batches, and whenever the time `every` has passed. 0: off. A fit on a
  /// stream that cannot restart is saved after every epoch, since any epoch may
  /// be the last.
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  std::chrono::seconds every{0};
  /// Number of checkpoints to keep. Older checkpoints are removed once a newer
  /// one is complete. 0: all.
  int64_t keep = 3;
  /// Syncs each checkpoint to the disk. Without it, a power failure may lose
  /// the newest one; killing the program does not.
  bool durable = true;
  /// While a fit runs, SIGTERM and SIGINT finish the step, save, and end the
  /// fit as FitResult::interrupted. The program's own handlers are restored
  /// afterwards. A second signal goes to them at once.
  bool on_signals = false;
};

/// Saves checkpoints during training, so that a run can be killed at any time
/// and resumed exactly:
///
///   learn.resume("run", {.if_exists = true});
///   learn.add<tern::SaveCheckpoint>({.folder = "run"});
///   learn.fit_one_cycle(10);
///
/// A save copies the state, then writes it while training continues. If a run
/// does not resume from the last step in its folder, its first save renames the
/// later checkpoints to `step_<n>.replaced-<i>`, since they belong to an
/// abandoned branch. `learn.request_stop()` saves too, once the step is
/// finished. A failed save ends training with its error, at the next save or at
/// the end of the fit. Weights that contain a NaN are not saved, so that they
/// do not replace a good checkpoint; the sink gets a warning.
class SaveCheckpoint final : public Callback {
 public:
  using Options = SaveCheckpointOptions;

  explicit SaveCheckpoint(Options options = {});

  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws IoError if the folder cannot be written, CheckpointError if
  ///         another program uses it or if it holds the checkpoints of another
  ///         run.
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  void on_interrupt(Learner& learn) override;
  /// Runs after all other callbacks.
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveCheckpoint; }

  /// Waits until the last checkpoint is written.
  /// \throws the error that writing it raised.
  /// \return true if a checkpoint was pending and is now on the disk.
  bool wait(Learner& learn);
  OptionValues option_values() const override;

 private:
  // The result of a finished save.
  struct Written {
    int64_t step;
    std::string diverged = {};  // name of a tensor with a NaN: not written
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
  // Step of the folder's newest checkpoint of this branch of the run.
  int64_t branch_step_ = 0;
  std::chrono::steady_clock::time_point last_save_;
  bool is_due_ = false;  // save once the step is complete
};

}  // namespace tern
