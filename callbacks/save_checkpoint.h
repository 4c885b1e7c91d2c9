#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>

#include "tern/learner/callback.h"
#include "tern/learner/checkpoint/checkpoint.h"

namespace tern {

class RunLock;        // learner/checkpoint/run_lock.h
class StopOnSignals;  // callbacks/stop_signals.h

struct SaveCheckpointOptions {
  /// The run's folder; relative to LearnerOptions::path.
  std::filesystem::path folder = "checkpoints";
  /// When: at the end of every so many epochs, after every so many batches,
  /// and when so much time has passed. 0: not for that reason.
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  std::chrono::seconds every{0};
  /// How many are kept; older ones are removed once a newer is safe. 0: all.
  int64_t keep = 3;
  /// Wait until everything is on the disk. Without it a killed program loses
  /// nothing still, a power cut may take the newest checkpoint.
  bool durable = true;
  /// Copy the state and write it while training goes on.
  bool async = true;
  /// While a fit runs, SIGTERM and SIGINT finish the step, save and end the
  /// fit as FitResult::interrupted; the program's own handlers are back after
  /// it. A second signal goes to them at once.
  bool on_signals = false;
};

/// Saves everything that an exact continuation needs while a training runs, so
/// that it can be killed at any moment:
///
///   if (learn.has_checkpoint("run")) learn.resume("run");
///   learn.add<tern::SaveCheckpoint>({.folder = "run"});
///   learn.fit_one_cycle(10);
///
/// `learn.request_stop()` saves too, once the step is finished. A save that
/// fails ends the training with its error, at the next save or at the end of
/// fit, never without a word. Weights with a NaN in them are not saved, which
/// would push out a good checkpoint for one that cannot go on; the sink gets a
/// warning.
class SaveCheckpoint final : public Callback {
 public:
  using Options = SaveCheckpointOptions;

  explicit SaveCheckpoint(Options options = {});
  ~SaveCheckpoint() override;

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
  /// After everyone else: it saves what they have made of the step.
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveCheckpoint; }

  /// Waits until what was asked for is on the disk. \throws what the writing
  /// threw.
  void wait(Learner& learn);

 private:
  bool is_time(Learner& learn) const;
  void save(Learner& learn);

  Options options_;
  std::filesystem::path folder_;
  std::unique_ptr<RunLock> lock_;
  std::shared_ptr<StopOnSignals> signals_;
  std::future<std::string> writing_;
  std::chrono::steady_clock::time_point last_save_;
  bool is_due_ = false;  // once the step is complete
};

}  // namespace tern
