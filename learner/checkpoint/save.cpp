// What Learner::save and load leave to weight files: the model in fp32, and the
// optimizer's state beside it.

#include "tern/learner/checkpoint/save.h"

#include <fmt/format.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
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

// Says in both files that they belong together: a program that is killed
// between the two leaves a pair that does not.
constexpr const char* kPairKey = "tern.saved_together";
constexpr const char* kKindKey = "tern.optimizer";
constexpr const char* kRunKey = "tern.run";

fs::path weights_file(const Learner& learn, const std::string& name) {
  TORCH_CHECK_VALUE(
      !name.empty(),
      "[Learner] the name is empty; expected one such as \"best\".");
  return learn.options().path / learn.options().model_dir /
         (name + ".safetensors");
}

fs::path optimizer_file(fs::path file) {
  return file.replace_extension(".optimizer.safetensors");
}

void write_files(
    Learner& learn,
    const fs::path& file,
    const StateDict& optimizer) {
  make_folders(file.parent_path());
  const std::string pair = random_id();
  const fs::path beside = optimizer_file(file);
  AtomicFile of_weights(file), of_optimizer(beside);
  // One after the other: from a GPU each is a copy.
  SafetensorsImage(
      optimizer,
      {{kPairKey, pair}, {kKindKey, optim::class_name(learn.optimizer())}},
      beside,
      /*checksum=*/true)
      .write(of_optimizer);
  SafetensorsImage(
      learn.state_dict(),
      {{kPairKey, pair}, {kRunKey, run_id(learn)}},
      file,
      /*checksum=*/true)
      .write(of_weights);
  // A full disk leaves both old files.
  of_weights.sync();
  of_optimizer.sync();
  of_optimizer.commit_with_sum(false);
  of_weights.commit_with_sum(false);
}

// The optimizer's state that was saved with the weights of `file`.
StateDict read_optimizer(const fs::path& file, const std::string& kind) {
  const fs::path path = optimizer_file(file);
  const auto check = [&](bool is_good, const std::string& reason) {
    if (is_good) return;
    throw DataError(
        path.string(),
        reason +
            "; load with {.with_optimizer = false} to begin with a new "
            "optimizer");
  };
  std::error_code error;
  check(fs::exists(path, error), "the optimizer's state is missing");
  auto of_weights = safetensors_metadata(file);
  auto of_optimizer = safetensors_metadata(path);
  check(
      of_weights[kPairKey] == of_optimizer[kPairKey],
      "the optimizer's state and the weights were not saved together; a "
      "program was stopped between the two");
  check(
      of_optimizer[kKindKey] == kind,
      fmt::format(
          "the state is of a {}, the Learner has a {}",
          of_optimizer[kKindKey],
          kind));
  return load_weights(path);
}

// A program that loads what a callback saves expects the model of this training,
// not that of an earlier one.
// \return false after a stop that came before there was one.
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
        "Not loading \"{}\": the training was stopped before it was saved.",
        name));
    return false;
  }
  if (!is_unsaved || known->second.empty()) return true;
  throw DataError(
      file.string(),
      is_there
          ? fmt::format(
                "the file is of another training, and this one has saved none: "
                "{}. To load it all the same, remove the callback that saves "
                "under this name first, or give the file another name",
                known->second)
          : fmt::format("there is no such file: {}", known->second));
}

// `act`'s complaint about tensors, with the file that they are of.
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
  // The training that is resumed wrote it when it was here.
  if (is_ahead_of_program(*this) &&
      !loop::text_of_rank(*parts_, fs::exists(file) ? "it is there" : "")
           .empty()) {
    return;
  }
  // Of several processes rank 0 writes, and none goes on before it has: one
  // may load the file next.
  parts_->position.run_id = loop::text_of_rank(*parts_, run_id(*this));
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
    return false;  // loading it says what is wrong
  }
}

void remove_saved(const Learner& learn, const std::string& name) {
  const fs::path file = weights_file(learn, name);
  std::error_code ignored;
  for (const fs::path& saved : {file, optimizer_file(file)}) {
    fs::remove(sum_file(saved), ignored);
    fs::remove(saved, ignored);
  }
}

Learner& Learner::load(const std::string& name) {
  return load(name, {});
}

Learner& Learner::load(
    const std::string& name,
    const LoadModelOptions& options) {
  if (!may_load(*this, name)) return *this;
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
