#include "tern/learner/checkpoint/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/random_id.h"
#include "tern/learner/checkpoint/checkpoint_settings.h"
#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

void check_differences(
    const std::vector<std::string>& differences,
    bool allow_change) {
  if (allow_change || differences.empty()) return;
  throw CheckpointError(
      "",
      fmt::format(
          "[Learner::resume] this training is not the one that the checkpoint "
          "is of: {}. Make them equal, or resume with {{.allow_change = "
          "true}}.",
          fmt::join(differences, "; ")));
}

class ResumePlan final : public Continuation {
 public:
  /// \param skips_fits  The program makes the fits again that were complete.
  ResumePlan(Checkpoint checkpoint, bool allow_change, bool skips_fits)
      : checkpoint_(std::move(checkpoint)), allow_change_(allow_change) {
    if (skips_fits) {
      fits_to_skip_ = checkpoint_.training["fits"].item<int64_t>();
    }
  }

  std::string checkpoint_name() const override {
    return fmt::format("step {} of run {}", checkpoint_.step, checkpoint_.run);
  }

  bool was_done_before(
      Learner& learner,
      int64_t epochs,
      const LearningRates& lr) override {
    const auto progress = saved_progress(checkpoint_);
    const bool is_between_fits = progress.epoch == 0 && progress.batch == 0;
    if (fits_to_skip_ > 0) {
      if (is_between_fits && fits_to_skip_ == 1) {
        // One that was made before any fit has none of its settings.
        if (checkpoint_.settings.contains("epochs")) {
          const auto now = loop::fit_settings(learner.parts(), epochs, lr);
          check_differences(differences(now, checkpoint_), allow_change_);
        }
        apply_training(learner, checkpoint_);
        is_applied_ = true;
      }
      --fits_to_skip_;
      learner.state().result = FitResult::completed;
      return true;
    }
    if (!is_between_fits) return false;
    // This one begins as any other does, with the callbacks that are there now.
    const auto self = std::move(learner.parts().continuation);
    apply_training(learner, checkpoint_);
    return false;
  }

  void put_back(Learner& learner, bool in_epoch) override {
    auto changes = differences(running_fit_settings(learner), checkpoint_);
    for (auto& text : callback_differences(learner, checkpoint_)) {
      changes.push_back(std::move(text));
    }
    check_differences(changes, allow_change_);
    apply_model(learner, checkpoint_);
    apply_training(learner, checkpoint_);
    const bool is_complete = in_epoch || learner.parts().first_batch == 0;
    if (is_complete) learner.parts().continuation.reset();
  }

  const Checkpoint& checkpoint() const { return checkpoint_; }
  /// The Learner is where the checkpoint was made.
  bool is_applied() const { return is_applied_; }

 private:
  Checkpoint checkpoint_;
  int64_t fits_to_skip_ = 0;  // complete when the checkpoint was written
  bool allow_change_;
  bool is_applied_ = false;
};

}  // namespace

std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback) {
  return take_saved_log(learner, callback);
}

const std::string& run_id(Learner& learner) {
  std::string& id = learner.parts().run_id;
  if (id.empty()) id = random_id();
  return id;
}

Checkpoint capture_checkpoint(Learner& learner) {
  run_id(learner);
  // Resumed, and not yet as far as the checkpoint: that is still the place.
  const auto* const plan =
      dynamic_cast<const ResumePlan*>(learner.parts().continuation.get());
  if (plan && !plan->is_applied() && !learner.is_fitting()) {
    return plan->checkpoint();
  }
  return capture_state(learner);
}

void Learner::save_checkpoint(const std::filesystem::path& folder) {
  write_checkpoint(parts_->options.path / folder, capture_checkpoint(*this));
}

bool Learner::has_checkpoint(const std::filesystem::path& folder) const {
  return tern::has_checkpoint(parts_->options.path / folder);
}

Learner& Learner::resume(const std::filesystem::path& folder) {
  return resume(folder, {});
}

Learner& Learner::resume(
    const std::filesystem::path& folder,
    const ResumeOptions& options) {
  TORCH_CHECK(
      !parts_->is_fitting,
      "[Learner::resume] this Learner is training; resume before fit.");
  std::vector<std::string> problems;
  Checkpoint checkpoint =
      read_checkpoint(parts_->options.path / folder, problems);
  for (const std::string& problem : problems) {
    sink().warning(
        fmt::format("{}; an older checkpoint is used instead", problem));
  }
  check_differences(
      differences(training_settings(*this), checkpoint),
      options.allow_change);
  apply_model(*this, checkpoint);
  parts_->run_id = checkpoint.run;
  parts_->resumed_logs = saved_logs(checkpoint);
  parts_->continuation = std::make_unique<ResumePlan>(
      std::move(checkpoint),
      options.allow_change,
      /*skips_fits=*/parts_->fits_done == 0);
  return *this;
}

}  // namespace tern
