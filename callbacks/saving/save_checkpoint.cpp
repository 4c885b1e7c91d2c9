#include "tern/callbacks/saving/save_checkpoint.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// ---- Signals ----

constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};

// A signal handler can only access globals.
std::atomic<Learner*> g_learner = nullptr;
std::atomic<int> g_count = 0;
std::array<struct sigaction, kSignals.size()> g_before;

static_assert(std::atomic<Learner*>::is_always_lock_free);

void restore_handlers() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &g_before[i], nullptr);
  }
}

// Uses only atomics, sigaction and raise, which are allowed in a handler.
void on_signal(int signal) {
  if (g_count.fetch_add(1) == 0) {
    if (Learner* const learner = g_learner) learner->request_stop();
    return;
  }
  restore_handlers();
  ::raise(signal);
}

// Makes SIGTERM and SIGINT stop each fit, including dry runs, like
// `request_stop`. The program's own handlers are restored after the fit, or on
// a second signal. Only one instance is active at a time; all others do
// nothing.
class StopOnSignals final : public Callback {
 public:
  ~StopOnSignals() override { release(); }

  void on_train_begin(Learner& learn) override {
    release();
    Learner* none = nullptr;
    is_mine_ = g_learner.compare_exchange_strong(none, &learn);
    if (is_mine_) take();
  }
  void on_train_end(Learner&) override { release(); }
  int order() const override { return callback_order::kFirst; }

 private:
  static void take() {
    g_count = 0;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &g_before[i]);
    }
  }
  void release() {
    if (!std::exchange(is_mine_, false)) return;
    if (g_count < 2) restore_handlers();
    g_learner = nullptr;
  }

  bool is_mine_ = false;
};

// ---- Writing ----

// Returns the name of a tensor with a NaN; empty if there is none.
std::string diverged_tensor(const Checkpoint& checkpoint) {
  std::vector<ModelTensor> tensors;
  for (const auto& entry : checkpoint.model) {
    tensors.push_back({entry.key(), entry.value()});
  }
  return broken_tensor({}, tensors);
}

}  // namespace

SaveCheckpoint::SaveCheckpoint(Options options) : options_(std::move(options)) {
  const char* const where = "SaveCheckpoint";
  check_at_least(where, "every_epochs", options_.every_epochs, 0);
  check_at_least(where, "every_steps", options_.every_steps, 0);
  check_at_least(where, "every", options_.every.count(), 0);
  check_at_least(where, "keep", options_.keep, 0);
  TORCH_CHECK_VALUE(
      !options_.folder.empty(),
      "[SaveCheckpoint] the folder name is empty; give the run a folder.");
}

void SaveCheckpoint::on_add(Learner& learn) {
  if (!options_.on_signals) return;
  const auto signals = std::make_shared<StopOnSignals>();
  signals_ = signals;
  learn.add(signals);
}

void SaveCheckpoint::on_remove(Learner& learn) {
  if (signals_) learn.remove(*signals_);
}

void SaveCheckpoint::on_train_begin(Learner& learn) {
  is_due_ = false;
  last_save_ = std::chrono::steady_clock::now();
  branch_step_ = step_to_continue(learn);
  folder_ = learn.options().path / options_.folder;
  loop::run_on_all_ranks(parts_of(learn), [&] {
    if (communicator(learn).is_main_process()) take_folder(learn);
  });
}

void SaveCheckpoint::take_folder(Learner& learn) {
  if (!lock_) lock_ = std::make_unique<RunLock>(folder_);
  remove_unfinished_checkpoints(folder_);
  for (const auto& step : list_checkpoints(folder_)) {
    const std::string run = run_of_checkpoint(step);
    if (run.empty() || run == run_id(learn)) continue;
    throw CheckpointError(
        folder_.string(),
        "the checkpoints here belong to a different run. Call "
        "learn.resume(folder) to continue it, or use a different folder for "
        "this run.");
  }
}

// Uses the clock of rank 0.
bool SaveCheckpoint::is_time(Learner& learn) const {
  if (options_.every.count() == 0) return false;
  const bool is_due =
      std::chrono::steady_clock::now() - last_save_ >= options_.every;
  return loop::first_rank_where(
             parts_of(learn),
             is_due && communicator(learn).is_main_process())
      .has_value();
}

void SaveCheckpoint::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  is_due_ =
      is_due_ || is_time(learn) ||
      (options_.every_steps > 0 && state.iteration % options_.every_steps == 0);
  // Checkpoints are written only between steps.
  if (!is_due_ || state.accumulating) return;
  is_due_ = false;
  save(learn);
}

void SaveCheckpoint::on_epoch_end(Learner& learn) {
  const TrainState& state = learn.state();
  const bool is_epoch = options_.every_epochs > 0 &&
                        (state.epoch + 1) % options_.every_epochs == 0;
  // That a stream has ended exactly with this epoch shows only in the next one.
  const bool is_last =
      state.epoch + 1 == state.epochs || state.stop_training ||
      parts_of(learn).position.data_have_ended ||
      learn.data().loader(Split::train).dataset().can_end_early();
  if (is_epoch || is_last) save(learn);
}

void SaveCheckpoint::on_interrupt(Learner& learn) {
  save(learn);
  bool is_saved = false;
  loop::run_on_all_ranks(parts_of(learn), [&] { is_saved = wait(learn); });
  if (is_saved) {
    learn.options().sink->line(fmt::format(
        "SaveCheckpoint: saved {}; to continue, start the program again with "
        "resume(\"{}\").",
        (folder_ / fmt::format("step_{}", learn.state().iteration)).string(),
        options_.folder.string()));
  }
}

// Reports the result of the previous save on all ranks, at the same step.
void SaveCheckpoint::save(Learner& learn) {
  Checkpoint checkpoint = capture_on_all_ranks(learn, [&] { wait(learn); });
  last_save_ = std::chrono::steady_clock::now();
  if (!communicator(learn).is_main_process()) return;
  writing_ = std::async(
      std::launch::async,
      [folder = folder_,
       checkpoint = std::move(checkpoint),
       options = WriteCheckpointOptions{
           .keep = options_.keep,
           .durable = options_.durable,
           .branch_step = branch_step_}] {
        Written result{.step = checkpoint.step};
        result.diverged = diverged_tensor(checkpoint);
        if (result.diverged.empty()) {
          result.aside = write_checkpoint(folder, checkpoint, options);
        }
        return result;
      });
}

bool SaveCheckpoint::wait(Learner& learn) {
  if (!writing_.valid()) return false;
  const Written written = writing_.get();
  if (!written.diverged.empty()) {
    learn.options().sink->warning(fmt::format(
        "no checkpoint of step {}: \"{}\" contains NaN, so training has "
        "diverged",
        written.step,
        written.diverged));
    return false;
  }
  branch_step_ = written.step;
  tell_put_aside(learn, written.aside);
  return true;
}

void SaveCheckpoint::on_train_end(Learner& learn) {
  const auto lock = std::move(lock_);  // released even if `wait` throws
  if (learn.state().failed) {
    wait(learn);
  } else {
    loop::run_on_all_ranks(parts_of(learn), [&] { wait(learn); });
  }
}

OptionValues SaveCheckpoint::option_values() const {
  return {
      {"folder", option_text(options_.folder)},
      {"every_epochs", option_text(options_.every_epochs)},
      {"every_steps", option_text(options_.every_steps)},
      {"every", option_text(options_.every)},
      {"keep", option_text(options_.keep)},
      {"durable", option_text(options_.durable)},
      {"on_signals", option_text(options_.on_signals)}};
}

}  // namespace tern
