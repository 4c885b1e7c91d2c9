#include "tern/learner/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/random_id.h"
#include "tern/learner/learner.h"
#include "tern/learner/training_state.h"

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

}  // namespace

std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback) {
  return TrainingState::take_log(learner, callback);
}

const std::string& Learner::run_id() {
  if (run_.empty()) {
    run_ = random_id();
  }
  return run_;
}

Checkpoint Learner::capture_checkpoint() {
  run_id();
  // Resumed, and not yet as far as the checkpoint: that is still the place.
  if (resume_ && !resume_->is_applied && !is_fitting_) {
    return resume_->checkpoint;
  }
  return TrainingState::capture(*this);
}

void Learner::save_checkpoint(const std::filesystem::path& folder) {
  write_checkpoint(options_.path / folder, capture_checkpoint());
}

bool Learner::has_checkpoint(const std::filesystem::path& folder) const {
  return tern::has_checkpoint(options_.path / folder);
}

Learner& Learner::resume(const std::filesystem::path& folder) {
  return resume(folder, {});
}

Learner& Learner::resume(
    const std::filesystem::path& folder,
    const ResumeOptions& options) {
  TORCH_CHECK(
      !is_fitting_,
      "[Learner::resume] this Learner is training; resume before fit.");
  std::vector<std::string> problems;
  auto plan = std::make_unique<ResumePlan>();
  plan->checkpoint = read_checkpoint(options_.path / folder, problems);
  plan->allow_change = options.allow_change;
  for (const std::string& problem : problems) {
    sink().warning(
        fmt::format("{}; an older checkpoint is used instead", problem));
  }
  check_differences(
      TrainingState::differences(*this, plan->checkpoint),
      options.allow_change);
  TrainingState::apply_model(*this, plan->checkpoint);
  if (fits_done_ == 0) {
    plan->fits_to_skip = plan->checkpoint.training["fits"].item<int64_t>();
  }
  run_ = plan->checkpoint.run;
  resumed_logs_ = TrainingState::logs(plan->checkpoint);
  resume_ = std::move(plan);
  return *this;
}

// Whether this fit was complete when the checkpoint was made, and another one
// begun.
bool Learner::was_done_before_resume(int64_t epochs, const LearningRates& lr) {
  if (!resume_) return false;
  const auto progress = TrainingState::progress(resume_->checkpoint);
  const bool is_between_fits = progress.epoch == 0 && progress.batch == 0;
  if (resume_->fits_to_skip > 0) {
    const bool is_last = is_between_fits && resume_->fits_to_skip == 1;
    if (is_last) {
      check_differences(
          TrainingState::differences_of_done_fit(
              TrainingState::fit_settings(*this, epochs, lr),
              resume_->checkpoint),
          resume_->allow_change);
      TrainingState::apply_training(*this, resume_->checkpoint);
      resume_->is_applied = true;
    }
    --resume_->fits_to_skip;
    state_.result = FitResult::completed;
    return true;
  }
  if (!is_between_fits) return false;
  // This one begins as any other does, with the callbacks that are there now.
  const auto plan = std::move(resume_);
  TrainingState::apply_training(*this, plan->checkpoint);
  return false;
}

// After on_train_begin, and once more after on_epoch_begin when the checkpoint
// was made in the middle of an epoch: what callbacks set up there is replaced.
void Learner::continue_from_checkpoint(bool in_epoch) {
  if (!resume_ || state_.is_trial) return;
  const Checkpoint& checkpoint = resume_->checkpoint;
  check_differences(
      TrainingState::fit_differences(*this, checkpoint),
      resume_->allow_change);
  TrainingState::apply_model(*this, checkpoint);
  TrainingState::apply_training(*this, checkpoint);
  if (in_epoch || first_batch_ == 0) resume_.reset();
}

}  // namespace tern
