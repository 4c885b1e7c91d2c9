#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Controls a running fit from another thread, for example from a GUI.
///
///   auto control = std::make_shared<tern::RunControl>();
///   std::thread training([&] { learn.add(control).fit(100); });
///   control->pause();
///   control->set_learning_rates(1e-4);
///   control->resume();
///
/// Requests take effect once the current step is complete. Every function
/// except the events may be called from any thread; a request made between fits
/// applies to the next one. `learn.request_stop()` ends a fit, even a paused
/// one. The Learner's sink shows the progress. In distributed training every
/// rank needs a RunControl, and requests can be made on any rank: all ranks
/// pause while any of them requests it, and all take part in a requested
/// checkpoint. Learning rates are taken from rank 0.
class RunControl final : public Callback {
 public:
  /// Pauses the fit before its next training batch, until `resume`. Does not
  /// interrupt validation.
  void pause();
  void resume();
  /// True while the fit is paused.
  bool is_paused() const { return is_paused_; }

  /// Overrides the learning rates, including a schedule's, from the next batch
  /// until the fit ends. If they do not match the layer groups, logs a warning
  /// and changes nothing.
  void set_learning_rates(LearningRates lr);
  /// Returns to the fit's own learning rates or its schedule.
  void release_learning_rates();

  /// Writes a checkpoint after the next step, as `Learner::save_checkpoint`
  /// does, even while the fit is paused. If that fails, logs a warning and
  /// training continues.
  void request_checkpoint(std::filesystem::path folder);
  /// Number of checkpoints written so far.
  int64_t checkpoints_written() const { return checkpoints_; }

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// Runs after all other callbacks.
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveCheckpoint + 1; }

 private:
  void request(const std::function<void()>& change);
  template <class T>
  std::optional<T> take(std::optional<T>& wish);
  void use_rates(Learner& learn);
  struct Wishes {
    bool pause = false, stop = false, checkpoint = false;
  };
  Wishes wishes_of_all_ranks(Learner& learn);
  void write_checkpoint(Learner& learn);
  void wait_for_news();
  bool is_turn_next() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool should_pause_ = false;
  std::optional<LearningRates> rates_;
  std::optional<std::filesystem::path> checkpoint_folder_;

  std::atomic<bool> has_news_ = false;  // avoids the lock if nothing changed
  std::atomic<bool> is_paused_ = false;
  std::atomic<int64_t> checkpoints_ = 0;
  // Used only by the training thread.
  Learner* learn_ = nullptr;        // while a fit runs
  std::vector<double> used_rates_;  // per layer group; empty: not overridden
  std::vector<double> own_rates_;   // the rates before the override
};

}  // namespace tern
