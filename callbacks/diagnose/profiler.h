#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/callbacks/logging/log_file.h"
#include "tern/learner/callback.h"
#include "tern/learner/report/memory_meter.h"

namespace tern {

/// The phases of a training run.
enum class Phase {
  data_wait,   // until the loader returns a batch
  to_device,   // the copy to the device, and batch transforms
  forward,     // the model
  loss,        // the loss function
  backward,    // loss.backward()
  step,        // the optimizer, and freeing the gradients
  callbacks,   // all callbacks together, in training and between epochs
  validation,  // the whole evaluation
  other,       // starting the loaders and other work
};
constexpr size_t kPhases = 9;

/// "data wait", "to device", ...
const char* to_string(Phase phase);

/// Measures the phases of training and logs them when a fit ends.
///
///   learn.add<Profiler>().fit(1);
///
///   Profiler: 64 batches in 1.20 s
///   phase        seconds  % of time  ms/batch  peak MiB
///   data wait      0.012        1.0     0.188      17.2
///   ...
///
///   of callbacks: SaveModel 0.110 s, TensorBoard 0.020 s
///
/// (The last column appears with `memory`.)
///
/// Times are host times. GPU kernels run asynchronously; their time counts for
/// the phase that waits for them. The clock is read about 14 times per batch.
class Profiler : public Callback {
 public:
  struct Options {
    /// If set, writes a trace for chrome://tracing or ui.perfetto.dev when a
    /// fit ends. Relative to `LearnerOptions::path`.
    std::optional<std::filesystem::path> trace = {};
    /// Number of batches of each fit in the trace; >= 0.
    int64_t trace_batches = 1000;
    /// Marks the phases as NVTX ranges, for Nsight Systems. No effect without
    /// such a tool or in a build without CUDA.
    bool nvtx = false;
    /// Measures the peak tensor memory of each phase with `MemoryMeter`; on a
    /// GPU for the whole device.
    bool memory = false;
    /// Prints the table when a fit ends.
    bool show = true;
  };

  explicit Profiler(Options options);
  Profiler() : Profiler(Options{}) {}

  /// Returns the time spent in a phase during the last fit.
  double seconds(Phase phase) const {
    return seconds_[static_cast<size_t>(phase)];
  }
  int64_t batches() const { return batches_; }
  /// Seconds of each callback in the last fit, by name, slowest first. Includes
  /// the evaluation or inference that a callback starts.
  const std::vector<std::pair<std::string, double>>& callback_seconds() const {
    return callback_times_;
  }
  /// Peak tensor memory of a phase in bytes; 0 without `memory`.
  int64_t peak_bytes(Phase phase) const {
    return peak_bytes_[static_cast<size_t>(phase)];
  }
  /// Discards the measurements of this fit so far, for example of slow first
  /// batches.
  void restart();

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& l) override { begins(l, Event::epoch_begin); }
  void on_batch_begin(Learner& l) override { begins(l, Event::batch_begin); }
  void on_loss_begin(Learner& l) override { begins(l, Event::loss_begin); }
  void on_backward_begin(Learner& l) override {
    begins(l, Event::backward_begin);
  }
  void on_backward_end(Learner& l) override { begins(l, Event::backward_end); }
  void on_step(Learner& l) override { begins(l, Event::step); }
  void on_step_end(Learner& l) override { begins(l, Event::step_end); }
  void on_batch_end(Learner& l) override { begins(l, Event::batch_end); }
  void on_eval_begin(Learner& l) override { begins(l, Event::eval_begin); }
  void on_eval_end(Learner& l) override { begins(l, Event::eval_end); }
  void on_epoch_end(Learner& l) override { begins(l, Event::epoch_end); }
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kFirst; }
  OptionValues option_values() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Phase phase;
    Clock::time_point begin, end;
    int64_t epoch, batch;
  };

  // Called before and after the other callbacks of an event.
  void begins(Learner& learn, Event event);
  void ends(Learner& learn, Event event);
  // Adds the time since the previous call of this function to `phase`.
  void spent(Learner& learn, Phase phase, Clock::time_point end = Clock::now());
  // Starts the NVTX range of a phase.
  void enter(Phase phase);
  void name_callbacks(Learner& learn);
  void show(Learner& learn) const;
  void write_trace();

  Options options_;
  std::shared_ptr<Callback> last_;  // gets each event after all others
  bool is_on_ = false;
  bool is_in_range_ = false;  // an NVTX range is open
  Clock::time_point start_, mark_;
  std::array<double, kPhases> seconds_{};
  std::map<const Callback*, double> callback_seconds_;
  std::vector<std::pair<std::string, double>> callback_times_;
  std::array<int64_t, kPhases> peak_bytes_{};
  std::unique_ptr<MemoryMeter> memory_;  // while a fit runs
  int64_t batches_ = 0;
  std::vector<Span> spans_;
  std::optional<LogFile> trace_;
};

/// Measures the peak tensor memory of each epoch, training and validation.
///
///   learn.add<PeakMemory>().fit(3);
///   // PeakMemory: 512.3 MiB at most, in epoch 0
///
/// On CUDA this is the caching allocator's peak for the whole device. On a CPU
/// it is the peak of the training thread's allocations since the fit began,
/// which exclude existing weights and data. Logged as "peak_mib". Like fastai
/// v1's PeakMemMetric, but reads the allocator's statistics instead of polling
/// in a thread.
class PeakMemory final : public Callback {
 public:
  /// Peak bytes of each epoch of the last fit.
  const std::vector<int64_t>& epochs() const { return epochs_; }

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }

 private:
  std::unique_ptr<MemoryMeter> meter_;  // while a fit runs
  std::vector<int64_t> epochs_;
};

}  // namespace tern
