// Captures a Learner as a checkpoint and resumes its fits from one.

#include "tern/learner/checkpoint/resume.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/checkpoint/rank_states.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/weights/model_weights.h"

namespace tern {

namespace {

// ---- Settings of a run, which must match on resume ----

using Settings = std::map<std::string, std::string>;

constexpr const char* kUsedBatches = "batches in an epoch";
constexpr const char* kFingerprint = "fingerprint of the data";
constexpr const char* kProcesses = "processes";
constexpr const char* kRates = "learning rates";
constexpr const char* kWeightDecay = "weight decay";

// Data, optimizer and precision, without the settings of a fit.
Settings training_settings(Learner& learner) {
  const auto masters = master_weights(learner);
  Settings result = loop::data_settings(parts_of(learner));
  result.insert(
      {{kFingerprint, loop::data_fingerprint(parts_of(learner))},
       {"optimizer", optim::class_name(learner.optimizer())},
       {kWeightDecay, fmt::format("{}", learner.options().weight_decay)},
       {"weights", masters ? c10::toString(masters->dtype()) : "as they are"}});
  return result;
}

// Includes the number of batches after a callback such as LimitBatches has
// limited them.
Settings running_fit_settings(Learner& learner) {
  Settings result = parts_of(learner).position.fit_settings;
  result[kUsedBatches] =
      std::to_string(loop::training_loader(parts_of(learner)).size());
  return result;
}

// Includes the settings of the running or last fit.
Settings all_settings(Learner& learner) {
  Settings result = training_settings(learner);
  Settings of_fit = parts_of(learner).position.fit_settings;
  // A running fit's settings were recorded before callbacks changed the
  // loaders.
  if (learner.state().is_fitting) {
    of_fit = running_fit_settings(learner);
    std::swap(result, of_fit);
  }
  result.merge(of_fit);
  return result;
}

// Returns the differences between `now` and the checkpoint, as sentences.
std::vector<std::string> differences(
    const Settings& now,
    const Checkpoint& checkpoint) {
  // Older checkpoints do not contain these; there, the number of batches
  // reveals a difference.
  static const std::set<std::string> kNew = {
      kProcesses,
      kUsedBatches,
      kFingerprint,
      kWeightDecay};
  std::vector<std::string> result;
  for (const auto& [name, value] : now) {
    const auto saved = checkpoint.settings.find(name);
    const bool is_known = saved != checkpoint.settings.end();
    if (!is_known && kNew.contains(name)) continue;
    const std::string before = is_known ? saved->second : "not known";
    if (before != value) {
      result.push_back(fmt::format("{} was {}, is {}", name, before, value));
    }
  }
  return result;
}

constexpr std::string_view kCallbacks = "callbacks/";
constexpr const char* kAdded = "added";

// Returns, by name, the callbacks that were added during a fit according to the
// checkpoint. Null: the Learner has no callback of that name.
std::map<std::string, const Callback*> additions(
    const Learner& learner,
    const Checkpoint& checkpoint) {
  std::map<std::string, const Callback*> result;
  for (const auto& entry : entries_under(checkpoint.training, kAdded)) {
    result[entry.key()] = nullptr;
  }
  for (const auto& [name, callback] :
       loop::named_callbacks(parts_of(learner))) {
    const auto added = result.find(name);
    if (added != result.end()) added->second = callback;
  }
  return result;
}

std::vector<std::string> missing_additions(
    const Learner& learner,
    const Checkpoint& checkpoint) {
  std::vector<std::string> result;
  for (const auto& [name, callback] : additions(learner, checkpoint)) {
    if (callback) continue;
    result.push_back(
        fmt::format("{} is missing, which was added during a fit", name));
  }
  return result;
}

// Returns the callbacks that only the checkpoint or only the Learner has, as
// sentences.
std::vector<std::string> callback_differences(
    Learner& learner,
    const Checkpoint& checkpoint) {
  std::set<std::string> saved;  // "callbacks/EarlyStopping 0"
  for (const auto& entry : checkpoint.training) {
    const std::string& key = entry.key();
    if (!key.starts_with(kCallbacks)) continue;
    saved.insert(key.substr(0, key.find('/', kCallbacks.size())));
  }
  std::vector<std::string> result = missing_additions(learner, checkpoint);
  const auto added = additions(learner, checkpoint);
  for (const auto& [name, callback] :
       loop::named_callbacks(parts_of(learner))) {
    const bool was_there = saved.erase(name) > 0 || added.contains(name) ||
                           checkpoint.training.contains(kEmpty + name);
    if (!was_there && !callback->state_dict().is_empty()) {
      result.push_back(fmt::format("{} was not there", name));
    }
  }
  for (const std::string& name : saved) {
    if (added.contains(name)) continue;
    result.push_back(fmt::format("{} is not there", name));
  }
  return result;
}

void check_differences(
    const std::vector<std::string>& differences,
    bool allow_change) {
  if (allow_change || differences.empty()) return;
  throw CheckpointError(
      "",
      fmt::format(
          "[Learner::resume] this run differs from the checkpoint: {}. Make "
          "them equal, or resume with {{.allow_change = true}}.",
          fmt::join(differences, "; ")));
}

// ---- To a checkpoint ----

constexpr const char* kLogs = "logs";
constexpr const char* kRemoved = "removed";

// Records the callbacks that other callbacks have added and removed. Loggers
// are ignored, because they do not affect training.
void put_list_changes(const LearnerParts& l, StateDict& state) {
  const auto put = [&](const std::string& key) {
    state.insert(key, torch::zeros({}, torch::kLong));
  };
  auto removed = l.callbacks.removed_in_fits;
  if (l.state.is_fitting) {
    removed[l.position.fits_done] = loop::removed_in_fit(l);
  }
  for (const auto& [fit, names] : removed) {
    for (const auto& name : names) {
      put(fmt::format("{}/{}/{}", kRemoved, fit, name));
    }
  }
  for (const auto& [name, callback] : loop::named_callbacks(l)) {
    const bool is_added = l.callbacks.added_in_fits.contains(callback) &&
                          callback->role() != CallbackRole::writes;
    if (is_added) put(fmt::format("{}/{}", kAdded, name));
  }
}

TrainingMoment moment_of(const Checkpoint& checkpoint) {
  return {saved_integer(checkpoint.training, "fits"), checkpoint.step};
}

// Copies everything to the CPU, so that later changes of the Learner have no
// effect.
Checkpoint capture_state(Learner& learner) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(
      !parts_of(learner).ranks.communicator ||
          !parts_of(learner).step.window.is_open(),
      "[Learner::save_checkpoint] gradients are being accumulated, and each "
      "rank holds a part of them; call it while state().accumulating is "
      "false.");
  const WholeMasters whole(learner);
  Checkpoint result;
  result.run = parts_of(learner).position.run_id;
  result.step = learner.state().iteration;
  result.settings = all_settings(learner);
  for (const StatePart& part : state_parts(learner)) {
    StateDict& to = part.name == "model"       ? result.model
                    : part.name == "optimizer" ? result.optimizer
                                               : result.training;
    const StateDict state = part.capture();
    put_under(to, part.has_own_file() ? "" : part.name, state);
    if (state.is_empty() && part.name.starts_with(kCallbacks)) {
      to.insert(kEmpty + part.name, torch::zeros({}, torch::kLong));
    }
  }
  put_list_changes(parts_of(learner), result.training);
  if (learner.state().is_dry_run) return result;
  parts_of(learner).position.last_checkpoint = moment_of(result);
  for (const auto& [name, callback] :
       loop::named_callbacks(parts_of(learner))) {
    put_under(
        result.training,
        kLogs + ("/" + name),
        callback->log_state(learner));
  }
  return result;
}

// ---- From a checkpoint ----

class ResumePlan final : public Continuation {
 public:
  /// \param skips_fits  The program calls the completed fits again.
  ResumePlan(Checkpoint checkpoint, bool allow_change, bool skips_fits)
      : checkpoint_(std::move(checkpoint)), allow_change_(allow_change) {
    if (skips_fits) fits_to_skip_ = saved_integer(checkpoint_.training, "fits");
  }

  std::string checkpoint_name() const override {
    return fmt::format("step {} of run {}", checkpoint_.step, checkpoint_.run);
  }

  bool is_done(Learner& learner, int64_t epochs, const LearningRates& lr)
      override {
    const bool is_between_fits =
        number("in_fit") == 0 && number("epoch") == 0 && number("batch") == 0;
    if (fits_to_skip_ > 0) {
      const bool was_pruned =
          is_between_fits && fits_to_skip_ == 1 && number("pruned") != 0;
      remove_callbacks(learner, number("fits") - fits_to_skip_);
      if (is_between_fits && fits_to_skip_ == 1) {
        // A checkpoint that was saved before any fit has no settings of a fit.
        if (checkpoint_.settings.contains("epochs")) {
          const auto now = loop::fit_settings(parts_of(learner), epochs, lr);
          check_differences(differences(now, checkpoint_), allow_change_);
        }
        // The original program also made all changes that this program has made
        // since `resume`, such as freeze or load, before this fit. The
        // checkpoint's state therefore replaces them.
        apply_weights(learner);
        apply_training(learner, checkpoint_);
        leave_branch(learner);
        is_applied_ = true;
      } else if (fits_to_skip_ == 1) {
        // Freezes and unfreezes as the skipped fits did, for the next fit.
        restore_trained_at_begin(learner, checkpoint_);
      }
      --fits_to_skip_;
      learner.options().sink->line(fmt::format(
          "Skipping this fit: it was already complete at the checkpoint of "
          "step {}.",
          checkpoint_.step));
      learner.state().result =
          was_pruned ? FitResult::pruned : FitResult::completed;
      return true;
    }
    if (!is_between_fits) return false;
    check_differences(missing_additions(learner, checkpoint_), allow_change_);
    note_additions(learner);
    // This fit begins like any other, with the current callbacks and frozen
    // groups.
    const auto self = std::move(parts_of(learner).position.continuation);
    if (!is_applied_) {
      apply_training(learner, checkpoint_, /*with_trained=*/false);
      leave_branch(learner);
    }
    return false;
  }

  void restore(Learner& learner, bool in_epoch) override {
    remove_callbacks(learner, number("fits"));
    const Settings now = running_fit_settings(learner);
    auto changes = differences(now, checkpoint_);
    const bool has_more = number("in_epoch") != 0 || number("batch") > 0;
    // A callback may still be added in on_epoch_begin.
    if (in_epoch || !has_more) {
      for (auto& text : callback_differences(learner, checkpoint_)) {
        changes.push_back(std::move(text));
      }
    }
    check_differences(changes, allow_change_);
    const bool is_in_epoch = number("in_epoch") != 0 || number("batch") > 0;
    if (is_in_epoch && has_changed(kProcesses, now.at(kProcesses))) {
      throw CheckpointError(
          "",
          fmt::format(
              "[Learner::resume] this checkpoint was written by {} processes "
              "in the middle of an epoch, which {} cannot continue. Start the "
              "same number, or resume from a checkpoint written at the end of "
              "an epoch.",
              checkpoint_.settings.at(kProcesses),
              now.at(kProcesses)));
    }
    apply_weights(learner);
    if (has_changed(kRates, now.at(kRates))) {
      loop::set_hyper_parameter(
          parts_of(learner),
          HyperParameter::lr,
          parts_of(learner).position.own_rates);
    }
    apply_training(learner, checkpoint_);
    note_additions(learner);
    leave_branch(learner);
    if (in_epoch || !has_more) parts_of(learner).position.continuation.reset();
  }

  // The optimizer's state contains the weight decay of the checkpoint. If the
  // program has changed it, the new value is used, as `allow_change` permits.
  void apply_weights(Learner& learner) const {
    apply_model(learner, checkpoint_);
    const double weight_decay = learner.options().weight_decay;
    if (!has_changed(kWeightDecay, fmt::format("{}", weight_decay))) return;
    LearnerParts& l = parts_of(learner);
    loop::set_hyper_parameter(
        l,
        HyperParameter::weight_decay,
        std::vector<double>(l.groups.parameters.size(), weight_decay));
  }

  const Checkpoint& checkpoint() const { return checkpoint_; }
  /// True if the Learner has the state of the checkpoint.
  bool is_applied() const { return is_applied_; }

 private:
  // Removes the callbacks that a callback had removed in this fit before the
  // checkpoint.
  void remove_callbacks(Learner& learner, int64_t fit) const {
    const StateDict removed = entries_under(
        checkpoint_.training,
        fmt::format("{}/{}", kRemoved, fit));
    for (const auto& [name, callback] : names_at_begin(learner)) {
      if (removed.contains(name)) learner.remove(*callback);
    }
    // For the next checkpoint.
    parts_of(learner).callbacks.removed_in_fits[fit] = removed.keys();
  }

  // Renames the models that the run saved between the checkpoint and its stop.
  void leave_branch(Learner& learner) const {
    LearnerParts& l = parts_of(learner);
    l.position.last_checkpoint = moment_of(checkpoint_);
    loop::run_on_all_ranks(l, [&] {
      if (!communicator(learner).is_main_process()) return;
      const auto names =
          take_back_later_models(learner, *l.position.last_checkpoint);
      if (names.empty()) return;
      learner.options().sink->line(fmt::format(
          "Models saved after this checkpoint were moved aside: {}.",
          fmt::join(names, ", ")));
    });
  }

  // For the next checkpoint.
  void note_additions(Learner& learner) const {
    for (const auto& [name, callback] : additions(learner, checkpoint_)) {
      if (callback) {
        parts_of(learner).callbacks.added_in_fits.insert(callback);
      }
    }
  }

  static std::vector<std::pair<std::string, std::shared_ptr<Callback>>>
  names_at_begin(Learner& learner) {
    const LearnerParts& l = parts_of(learner);
    std::vector<std::pair<std::string, std::shared_ptr<Callback>>> result;
    if (l.state.is_fitting) {
      for (const auto& [name, callback] : l.callbacks.at_fit_begin) {
        if (auto there = callback.lock()) result.emplace_back(name, there);
      }
    } else {
      for (const auto& [name, callback] : loop::names_in_fit(l)) {
        result.emplace_back(name, callback);
      }
    }
    return result;
  }

  // False if an older checkpoint does not contain it.
  bool has_changed(const char* setting, const std::string& now) const {
    const auto saved = checkpoint_.settings.find(setting);
    return saved != checkpoint_.settings.end() && saved->second != now;
  }

  // 0 if an older checkpoint does not contain it.
  int64_t number(const char* name) const {
    return checkpoint_.training.contains(name)
               ? saved_integer(checkpoint_.training, name)
               : 0;
  }

  Checkpoint checkpoint_;
  int64_t fits_to_skip_ = 0;  // complete when the checkpoint was written
  bool allow_change_;
  bool is_applied_ = false;
};

const ResumePlan* plan_of(const Learner& learner) {
  return dynamic_cast<const ResumePlan*>(
      parts_of(learner).position.continuation.get());
}

}  // namespace

std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback) {
  std::optional<StateDict>& all = parts_of(learner).position.resumed_logs;
  if (!all) return std::nullopt;
  for (const auto& [name, known] : loop::named_callbacks(parts_of(learner))) {
    if (known != &callback) continue;
    StateDict taken = entries_under(*all, name);
    for (const auto& entry : taken) all->erase(name + "/" + entry.key());
    return taken;
  }
  return StateDict();
}

const std::string& run_id(Learner& learner) {
  std::string& id = parts_of(learner).position.run_id;
  if (id.empty()) id = random_id();
  return id;
}

Checkpoint capture_checkpoint(Learner& learner) {
  run_id(learner);
  // After a resume, until the program's fits reach the checkpoint, the
  // checkpoint is the current state.
  const ResumePlan* const plan = plan_of(learner);
  if (plan && !plan->is_applied()) return plan->checkpoint();
  TORCH_CHECK(
      parts_of(learner).evaluation.depth == 0,
      "[Learner::save_checkpoint] an evaluation is running, which uses other "
      "weights (Ema) and random numbers; call it between fits, in "
      "on_epoch_end, or in on_batch_end while state().training is true.");
  TORCH_CHECK(
      learner.state().is_fitting ||
          learner.state().result != FitResult::interrupted,
      "[Learner::save_checkpoint] the last fit was interrupted, and the state "
      "of its callbacks is lost; call save_checkpoint in on_interrupt, or add "
      "SaveCheckpoint, which calls it there.");
  if (!learner.state().is_fitting) loop::follow_model(parts_of(learner));
  return capture_state(learner);
}

bool is_ahead_of_program(const Learner& learner) {
  const ResumePlan* const plan = plan_of(learner);
  return plan && !plan->is_applied() && !parts_of(learner).state.is_fitting;
}

Checkpoint capture_on_all_ranks(
    Learner& learner,
    c10::function_ref<void()> before) {
  LearnerParts& l = parts_of(learner);
  Checkpoint checkpoint;
  const ResumePlan* const plan = plan_of(learner);
  const bool is_held_back = plan && !plan->is_applied();
  loop::data_fingerprint(l);  // needed by rank 0, computed by all
  l.position.run_id = broadcast_text(communicator(learner), run_id(learner));
  loop::run_on_all_ranks(l, before);
  loop::run_on_all_ranks(l, [&] {
    // If the state is divided among ranks, the other ranks contribute their
    // parts.
    if (communicator(learner).is_main_process() || l.ranks.training_shard) {
      checkpoint = capture_checkpoint(learner);
    }
  });
  // A checkpoint that was read already contains them.
  if (!is_held_back) gather_rank_states(learner, checkpoint);
  return checkpoint;
}

int64_t step_to_continue(const Learner& learner) {
  const ResumePlan* const plan = plan_of(learner);
  return plan && !plan->is_applied() ? plan->checkpoint().step
                                     : parts_of(learner).state.iteration;
}

void tell_put_aside(
    const Learner& learner,
    const std::vector<std::filesystem::path>& aside) {
  if (aside.empty()) return;
  std::vector<std::string> names;
  names.reserve(aside.size());
  for (const auto& path : aside) names.push_back(path.filename().string());
  learner.options().sink->line(fmt::format(
      "Checkpoints that are newer than the resumed one were moved to {}: {}; "
      "resume from one of these names to return to it.",
      aside.front().parent_path().string(),
      fmt::join(names, ", ")));
}

// Rank 0 writes, and no rank continues before that.
void Learner::save_checkpoint(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = capture_on_all_ranks(*this, [] {});
  loop::run_on_all_ranks(*parts_, [&] {
    if (!communicator(*this).is_main_process()) return;
    tell_put_aside(
        *this,
        write_checkpoint(
            parts_->options.path / folder,
            checkpoint,
            {.branch_step = checkpoint.step}));
  });
}

bool has_checkpoint(const Learner& learn, const std::filesystem::path& folder) {
  return has_checkpoint(learn.options().path / folder);
}

Learner& Learner::resume(const std::filesystem::path& folder) {
  return resume(folder, {});
}

Learner& Learner::resume(
    const std::filesystem::path& folder,
    const ResumeOptions& options) {
  TORCH_CHECK(
      !parts_->state.is_fitting,
      "[Learner::resume] this Learner is training; resume before fit.");
  loop::follow_model(*parts_);
  const std::filesystem::path whole = parts_->options.path / folder;
  if (!has_checkpoint(whole) && has_checkpoint(folder)) {
    parts_->options.sink->warning(fmt::format(
        "[Learner::resume] there is no checkpoint in {}, but there is one in "
        "{} of the current folder: a relative folder is within "
        "LearnerOptions::path. has_checkpoint(learn, folder) looks there too.",
        whole.string(),
        folder.string()));
  }
  if (options.if_exists && !has_checkpoint(whole)) return *this;
  std::vector<std::string> problems;
  Checkpoint checkpoint = read_checkpoint(whole, problems);
  for (const std::string& problem : problems) {
    parts_->options.sink->warning(
        fmt::format("resuming from an older checkpoint: {}", problem));
  }
  check_differences(
      differences(training_settings(*this), checkpoint),
      options.allow_change);
  auto plan = std::make_unique<ResumePlan>(
      std::move(checkpoint),
      options.allow_change,
      /*skips_fits=*/parts_->position.fits_done == 0);
  plan->apply_weights(*this);
  const Checkpoint& applied = plan->checkpoint();
  if (communicator(*this).is_main_process()) {
    parts_->options.sink->line(fmt::format(
        "Resuming at step {} from {}.",
        applied.step,
        applied.folder.string()));
  }
  parts_->position.run_id = applied.run;
  parts_->position.resumed_logs = entries_under(applied.training, kLogs);
  parts_->position.continuation = std::move(plan);
  return *this;
}

}  // namespace tern
