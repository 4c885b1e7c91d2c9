#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "tern/callbacks/log_file.h"
#include "tern/learner/callback.h"
#include "tern/learner/report/memory_meter.h"

namespace tern {

/// What a training spends its time on.
enum class Phase {
  data_wait,   // until the loader hands a batch over
  to_device,   // the copy to the device, and batch transforms
  forward,     // the model
  loss,        // the loss function
  backward,    // loss.backward()
  step,        // the optimizer, and giving up the gradients
  callbacks,   // all callbacks together, in training and between epochs
  validation,  // the whole pass
  other,       // making loaders, and the like
};
constexpr size_t kPhases = 9;

/// "data wait", "to device", ...
const char* to_string(Phase phase);

/// Measures the phases of a training, and shows them when a fit ends.
///
///   learn.add<Profiler>().fit(1);
///
///   Profiler: 64 batches in 1.20 s
///   phase        seconds    share  ms/batch  peak MiB
///   data wait      0.012    1.0 %     0.188      17.2
///   ...
///
/// (The last column with `memory`.)
///
/// A GPU works on while the host goes ahead: times are then those of the host,
/// and a phase that waits gets the time of those before it. `synchronize` waits
/// for the device at each phase's end, which tells where the device spends its
/// time, and makes training slower. A clock is read about 14 times a batch.
class Profiler final : public Callback {
 public:
  struct Options {
    /// Wait for the GPU at the end of each phase.
    bool synchronize = false;
    /// Set: a file for chrome://tracing or ui.perfetto.dev, written when a fit
    /// ends. Relative to `LearnerOptions::path`.
    std::optional<std::filesystem::path> trace = {};
    /// Batches of each fit that go into the trace.
    int64_t trace_batches = 1000;
    /// Mark the phases as NVTX ranges, for Nsight Systems. Nothing happens
    /// where no tool listens, or in a build without CUDA.
    bool nvtx = false;
    /// Measure the most memory that tensors take in each phase, as
    /// `MemoryMeter` does; on a GPU for the whole device.
    bool memory = false;
    /// Tell the sink the table when a fit ends.
    bool show = true;
    /// Measure in trials too (lr_find, dry_run, plan).
    bool in_trials = false;
  };

  explicit Profiler(Options options);
  Profiler() : Profiler(Options{}) {}
  ~Profiler() override;

  /// Of the last fit.
  double seconds(Phase phase) const {
    return seconds_[static_cast<size_t>(phase)];
  }
  int64_t batches() const { return batches_; }
  /// The most bytes that were alive at once in a phase; 0 without `memory`.
  int64_t peak_bytes(Phase phase) const {
    return peak_bytes_[static_cast<size_t>(phase)];
  }
  /// Forgets what was measured in this fit so far: its first, slow batches.
  void restart();

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_backward_end(Learner& learn) override;
  void on_step(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_eval_begin(Learner& learn) override;
  void on_eval_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override {
    return options_.in_trials ? CallbackRole::trains : CallbackRole::watches;
  }
  int order() const override { return callback_order::kFirst; }

 private:
  using Clock = std::chrono::steady_clock;
  class Last;
  struct Span {
    Phase phase;
    Clock::time_point begin, end;
    int64_t epoch, batch;
  };

  /// The time since the last call was spent on `phase`.
  void spent(Learner& learn, Phase phase);
  void add(Learner& learn, Phase phase, Clock::time_point end);
  /// What follows is that phase's, for NVTX.
  void enter(Phase phase);
  void show(Learner& learn) const;
  void write_trace();

  Options options_;
  std::shared_ptr<Last> last_;  // sees each event after all others
  bool is_on_ = false;
  bool is_in_range_ = false;  // of NVTX
  Clock::time_point start_, mark_;
  std::array<double, kPhases> seconds_{};
  std::array<int64_t, kPhases> peak_bytes_{};
  std::unique_ptr<MemoryMeter> memory_;  // while a fit runs
  int64_t batches_ = 0;
  std::vector<Span> spans_;
  std::optional<LogFile> trace_;
};

}  // namespace tern
