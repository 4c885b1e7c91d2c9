#include "tern/learner/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/random_id.h"
#include "tern/learner/loop.h"
#include "tern/learner/step_graph.h"
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

const std::string& loop::run_id(LearnerParts& l) {
  if (l.run_id.empty()) l.run_id = random_id();
  return l.run_id;
}

Checkpoint loop::capture_checkpoint(LearnerParts& l) {
  run_id(l);
  // Resumed, and not yet as far as the checkpoint: that is still the place.
  if (l.resume_plan && !l.resume_plan->is_applied && !l.is_fitting) {
    return l.resume_plan->checkpoint;
  }
  return TrainingState::capture(*l.self);
}

void Learner::save_checkpoint(const std::filesystem::path& folder) {
  write_checkpoint(
      parts_->options.path / folder,
      loop::capture_checkpoint(*parts_));
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
  auto plan = std::make_unique<ResumePlan>();
  plan->checkpoint = read_checkpoint(parts_->options.path / folder, problems);
  plan->allow_change = options.allow_change;
  for (const std::string& problem : problems) {
    sink().warning(
        fmt::format("{}; an older checkpoint is used instead", problem));
  }
  check_differences(
      TrainingState::differences(*this, plan->checkpoint),
      options.allow_change);
  TrainingState::apply_model(*this, plan->checkpoint);
  if (parts_->fits_done == 0) {
    plan->fits_to_skip = plan->checkpoint.training["fits"].item<int64_t>();
  }
  parts_->run_id = plan->checkpoint.run;
  parts_->resumed_logs = TrainingState::logs(plan->checkpoint);
  parts_->resume_plan = std::move(plan);
  return *this;
}

bool loop::was_done_before(
    LearnerParts& l,
    int64_t epochs,
    const LearningRates& lr) {
  if (!l.resume_plan) return false;
  const auto progress = TrainingState::progress(l.resume_plan->checkpoint);
  const bool is_between_fits = progress.epoch == 0 && progress.batch == 0;
  if (l.resume_plan->fits_to_skip > 0) {
    const bool is_last = is_between_fits && l.resume_plan->fits_to_skip == 1;
    if (is_last) {
      check_differences(
          TrainingState::differences_of_done_fit(
              TrainingState::fit_settings(*l.self, epochs, lr),
              l.resume_plan->checkpoint),
          l.resume_plan->allow_change);
      TrainingState::apply_training(*l.self, l.resume_plan->checkpoint);
      l.resume_plan->is_applied = true;
    }
    --l.resume_plan->fits_to_skip;
    l.state.result = FitResult::completed;
    return true;
  }
  if (!is_between_fits) return false;
  // This one begins as any other does, with the callbacks that are there now.
  const auto plan = std::move(l.resume_plan);
  TrainingState::apply_training(*l.self, plan->checkpoint);
  return false;
}

// After on_train_begin, and once more after on_epoch_begin when the checkpoint
// was made in the middle of an epoch: what callbacks set up there is replaced.
void loop::continue_from_checkpoint(LearnerParts& l, bool in_epoch) {
  if (!l.resume_plan || l.state.is_trial) return;
  const Checkpoint& checkpoint = l.resume_plan->checkpoint;
  check_differences(
      TrainingState::fit_differences(*l.self, checkpoint),
      l.resume_plan->allow_change);
  TrainingState::apply_model(*l.self, checkpoint);
  TrainingState::apply_training(*l.self, checkpoint);
  if (in_epoch || l.first_batch == 0) l.resume_plan.reset();
}

void loop::state_was_replaced(LearnerParts& l) {
  if (l.step_graph) l.step_graph->forget();
  run(l, Event::load);
}

}  // namespace tern
