// Learner::save and load: one file with the fp32 weights of the model, and one
// with the optimizer's state.

#include "tern/learner/checkpoint/save.h"

#include <optional>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/layer_groups.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/weights/model_weights.h"
#include "tern/learner/weights/weights.h"

namespace fs = std::filesystem;

namespace tern {

namespace {

// Stored in both files to show that they belong together: if a program is
// killed between writing the two, the values differ.
constexpr const char* kPairKey = "tern.saved_together";
constexpr const char* kKindKey = "tern.optimizer";
constexpr const char* kRunKey = "tern.run";
constexpr const char* kFitKey = "tern.fit";
constexpr const char* kStepKey = "tern.step";

constexpr const char* kWeightsEnding = ".safetensors";
constexpr const char* kOptimizerEnding = ".optimizer.safetensors";
// Folder for the model that existed under a name when the last checkpoint was
// captured. It has the same file name as the current model.
constexpr const char* kEarlierFolder = ".before";
constexpr const char* kReplacedName = ".replaced";

fs::path weights_file(const Learner& learn, const std::string& name) {
  TORCH_CHECK_VALUE(
      !name.empty(),
      "[Learner] the name is empty; expected one such as \"best\".");
  return learn.options().path / learn.options().model_dir /
         (name + kWeightsEnding);
}

fs::path optimizer_file(fs::path file) {
  return file.replace_extension(kOptimizerEnding);
}

fs::path earlier_file(const fs::path& file) {
  return file.parent_path() / kEarlierFolder / file.filename();
}

// "models/best.safetensors": "models/best.replaced.safetensors".
fs::path replaced_file(fs::path file) {
  return file.replace_extension(std::string(kReplacedName) + kWeightsEnding);
}

void remove_pair(const fs::path& file) {
  std::error_code ignored;
  for (const fs::path& saved : {file, optimizer_file(file)}) {
    fs::remove(sum_file(saved), ignored);
    fs::remove(saved, ignored);
  }
}

// Moves weights and optimizer. If the program is killed in between, the files
// were not saved together, which loading detects.
void move_pair(const fs::path& from, const fs::path& to) {
  for (const bool is_weights : {false, true}) {
    const fs::path source = is_weights ? from : optimizer_file(from);
    const fs::path target = is_weights ? to : optimizer_file(to);
    std::error_code error;
    if (!fs::exists(source, error)) continue;
    fs::rename(source, target, error);
    if (error) {
      throw IoError(
          source.string(),
          "rename it to " + target.string(),
          error.value());
    }
  }
}

// Returns when this run saved the file; unset if the file is missing or belongs
// to another run.
std::optional<TrainingMoment> moment_of(
    const fs::path& file,
    const std::string& run) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  try {
    const auto metadata = safetensors_metadata(file);
    const auto number = [&](const char* key) {
      return std::stoll(metadata.at(key));
    };
    if (metadata.at(kRunKey) != run) return std::nullopt;
    return TrainingMoment(number(kFitKey), number(kStepKey));
  } catch (const DataError&) {
    return std::nullopt;  // loading it reports the error
  } catch (const std::logic_error&) {
    return std::nullopt;  // from an older version
  }
}

// Before a new model is saved under the name, keeps the model that existed at
// the last checkpoint, because a run that resumes there may load it.
void keep_for_checkpoint(Learner& learn, const fs::path& file) {
  const auto& checkpoint = parts_of(learn).position.last_checkpoint;
  if (!checkpoint) return;
  const auto saved = moment_of(file, run_id(learn));
  if (!saved || *saved > *checkpoint) return;
  const fs::path earlier = earlier_file(file);
  make_folders(earlier.parent_path());
  remove_pair(earlier);
  for (const bool is_weights : {false, true}) {
    const fs::path source = is_weights ? file : optimizer_file(file);
    const fs::path target = is_weights ? earlier : optimizer_file(earlier);
    std::error_code error;
    if (!fs::exists(source, error)) continue;  // removed by another program
    fs::create_hard_link(source, target, error);
    // Not every file system supports links.
    if (error) fs::copy_file(source, target, error);
    if (error) throw IoError(target.string(), "write this file", error.value());
  }
}

void write_files(
    Learner& learn,
    const fs::path& file,
    const StateDict& optimizer) {
  make_folders(file.parent_path());
  const std::string pair = random_id();
  const LearnerParts& l = parts_of(learn);
  const fs::path beside = optimizer_file(file);
  AtomicFile of_weights(file), of_optimizer(beside);
  // One after the other, because each image is a copy if it comes from a GPU.
  SafetensorsImage(
      optimizer,
      {{kPairKey, pair}, {kKindKey, optim::class_name(learn.optimizer())}},
      beside,
      /*checksum=*/true)
      .write(of_optimizer);
  SafetensorsImage(
      learn.state_dict(),
      {{kPairKey, pair},
       {kRunKey, run_id(learn)},
       {kFitKey, std::to_string(l.position.fits_done)},
       {kStepKey, std::to_string(l.state.iteration)}},
      file,
      /*checksum=*/true)
      .write(of_weights);
  // If the disk is full, both old files are kept.
  of_weights.sync();
  of_optimizer.sync();
  keep_for_checkpoint(learn, file);
  of_optimizer.commit_with_sum(false);
  of_weights.commit_with_sum(false);
  remove_pair(replaced_file(file));
}

// Reads the optimizer's state that was saved with the weights of `file`.
StateDict read_optimizer(const fs::path& file, const std::string& kind) {
  const fs::path path = optimizer_file(file);
  const auto check = [&](bool is_good, const std::string& reason) {
    if (is_good) return;
    throw DataError(
        path.string(),
        reason +
            "; load with {.with_optimizer = false} to start with a new "
            "optimizer.");
  };
  std::error_code error;
  check(fs::exists(path, error), "the optimizer's state is missing");
  auto of_weights = safetensors_metadata(file);
  auto of_optimizer = safetensors_metadata(path);
  check(
      of_weights[kPairKey] == of_optimizer[kPairKey],
      "the optimizer's state and the weights were not saved together, because "
      "a program was stopped between the two");
  check(
      of_optimizer[kKindKey] == kind,
      fmt::format(
          "the state is from a {}, but the Learner has a {}",
          of_optimizer[kKindKey],
          kind));
  return load_weights(path);
}

// A program that loads a model that a callback saves expects this run's model,
// not an earlier run's.
// \return false if training was stopped before the model was saved.
bool may_load(Learner& learn, const std::string& name) {
  const fs::path file = weights_file(learn, name);
  std::error_code error;
  const bool is_there = fs::exists(file, error);
  const auto& unsaved = parts_of(learn).position.unsaved_models;
  const auto known = unsaved.find(name);
  const bool is_unsaved =
      known != unsaved.end() && !is_saved_by_run(learn, name);
  if (learn.state().result == FitResult::interrupted &&
      (is_unsaved || !is_there)) {
    learn.options().sink->warning(fmt::format(
        "Not loading \"{}\": training was stopped before it was saved.",
        name));
    return false;
  }
  if (!is_unsaved || known->second.empty()) return true;
  throw DataError(
      file.string(),
      is_there ? fmt::format(
                     "the file was written by a different run, and this run "
                     "has not saved it: {}. To load it anyway, remove the "
                     "callback that saves under this name, or rename the file "
                     "and load it by its new name.",
                     known->second)
               : fmt::format("there is no such file: {}.", known->second));
}

// Adds the file name to errors of `act` about tensors.
template <class Act>
auto naming(const fs::path& file, const Act& act) {
  try {
    return act();
  } catch (const c10::ValueError& error) {
    C10_THROW_ERROR(
        ValueError,
        fmt::format("{}: {}", file.string(), message_of(error)));
  }
}

}  // namespace

void Learner::save(const std::string& name) {
  const fs::path file = weights_file(*this, name);
  // The original run wrote the file at this point.
  if (is_ahead_of_program(*this) &&
      !broadcast_text(communicator(*this), fs::exists(file) ? "there" : "")
           .empty()) {
    return;
  }
  // Rank 0 writes, and no rank continues before that, because a rank may load
  // the file next.
  if (!parts_->state.is_fitting) loop::follow_model(*parts_);
  parts_->position.run_id = broadcast_text(communicator(*this), run_id(*this));
  loop::run_on_all_ranks(*parts_, [&] {
    const WholeMasters whole(*this);
    const StateDict optimizer = optimizer_state(*this);
    if (communicator(*this).is_main_process()) {
      write_files(*this, file, optimizer);
    }
  });
}

bool is_saved_by_run(Learner& learn, const std::string& name) {
  const fs::path file = weights_file(learn, name);
  std::error_code error;
  if (!fs::exists(file, error)) return false;
  try {
    return safetensors_metadata(file)[kRunKey] == run_id(learn);
  } catch (const DataError&) {
    return false;  // loading it reports the error
  }
}

void remove_saved(const Learner& learn, const std::string& name) {
  remove_pair(weights_file(learn, name));
}

std::vector<std::string> take_back_later_models(
    Learner& learn,
    const TrainingMoment& checkpoint) {
  const fs::path folder = learn.options().path / learn.options().model_dir;
  std::vector<fs::path> later;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == kEarlierFolder) at.disable_recursion_pending();
    const bool is_saved =
        name.ends_with(kWeightsEnding) && !name.ends_with(kOptimizerEnding) &&
        !name.ends_with(std::string(kReplacedName) + kWeightsEnding);
    if (!is_saved) continue;
    const auto saved = moment_of(at->path(), run_id(learn));
    if (saved && *saved > checkpoint) later.push_back(at->path());
  }
  std::vector<std::string> aside;
  for (const fs::path& file : later) {
    const fs::path replaced = replaced_file(file);
    aside.push_back(replaced.string());
    remove_pair(replaced);
    move_pair(file, replaced);
    const fs::path earlier = earlier_file(file);
    const auto saved = moment_of(earlier, run_id(learn));
    if (saved && *saved <= checkpoint) move_pair(earlier, file);
  }
  return aside;
}

void remove_earlier_model(Learner& learn, const std::string& name) {
  const fs::path file = weights_file(learn, name);
  const auto saved = moment_of(file, run_id(learn));
  const auto& checkpoint = parts_of(learn).position.last_checkpoint;
  if (!saved || !checkpoint || *saved > *checkpoint) return;
  const fs::path earlier = earlier_file(file);
  remove_pair(earlier);
  std::error_code ignored;
  fs::remove(earlier.parent_path(), ignored);  // if it is empty
}

Learner& Learner::load(const std::string& name) {
  return load(name, {});
}

Learner& Learner::load(
    const std::string& name,
    const LoadModelOptions& options) {
  if (!may_load(*this, name)) return *this;
  if (!parts_->state.is_fitting) loop::follow_model(*parts_);
  const fs::path file = weights_file(*this, name);
  LoadPlan plan = naming(file, [&] {
    return plan_load(load_targets(*this), load_weights(file), options.weights);
  });
  if (options.with_optimizer) {
    const StateDict state =
        read_optimizer(file, optim::class_name(this->optimizer()));
    naming(optimizer_file(file), [&] { load_optimizer_state(*this, state); });
  } else if (parts_->optimizer) {
    optim::clear_state(*parts_);
  }
  apply(plan, *this);
  loop::invalidate_derived_state(*parts_);
  parts_->record_call(fmt::format("load({})", name));
  return *this;
}

}  // namespace tern
