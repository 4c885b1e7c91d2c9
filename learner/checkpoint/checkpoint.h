#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// Nothing in a folder can be resumed, or it does not fit this program;
/// `what()` says which and what to do.
class CheckpointError : public DataError {
 public:
  using DataError::DataError;
};

class Learner;

/// Whether `folder` holds something that `Learner::resume` would try. A relative
/// one is taken from the current folder, as any path.
bool has_checkpoint(const std::filesystem::path& folder);
/// Whether it does where `learn.resume(folder)` looks: a relative folder is
/// within LearnerOptions::path.
bool has_checkpoint(const Learner& learn, const std::filesystem::path& folder);

struct ResumeOptions {
  /// Go on although the data's size, the batch size, the classes, the rates or
  /// the number of epochs are others than when the checkpoint was written. The
  /// result then is not that of an uninterrupted training.
  bool allow_change = false;
  /// Do nothing if the folder holds no checkpoint, so that the same command
  /// starts and restarts a run.
  ///
  ///   learn.resume("run", {.if_exists = true});
  ///   learn.add<tern::SaveCheckpoint>({.folder = "run"}).fit_one_cycle(10);
  bool if_exists = false;
};

/// All that an exact continuation needs of a Learner.
struct Checkpoint {
  std::string run;   // which training; kept over its continuations
  int64_t step = 0;  // training batches done
  /// By Python's names: fp32 weights (the masters) and buffers. On the CPU.
  StateDict model;
  StateDict optimizer;  // as optim::named_state gives it
  StateDict training;   // place in the data, random numbers, callbacks, ...
  /// What has to be equal in the program that goes on, in words.
  std::map<std::string, std::string> settings;
  std::filesystem::path folder = {};  // that it was read from
};

struct WriteCheckpointOptions {
  /// Older ones beyond this many are removed, once the new one is safe. 0: all
  /// are kept.
  int64_t keep = 0;
  /// Wait until everything is on the disk. Without it a killed program loses
  /// nothing still, a power cut may take the newest checkpoint.
  bool durable = true;
  /// The last step that this training has in common with what is in the folder:
  /// its checkpoints of later steps are of a branch that was given up, and are
  /// put aside. Unset: they stay.
  std::optional<int64_t> branch_step = std::nullopt;
};

/// Writes `folder/step_<n>`: three safetensors files and a manifest with their
/// SHA-256, each on the disk before the folder gets its name; then points
/// `folder/latest` to it. An existing checkpoint of this step with the same
/// content is kept; one with other weights is renamed to
/// `step_<n>.replaced-<i>`, a damaged one to `step_<n>.damaged-<i>`. Neither is
/// resumed automatically; the last `keep` replaced ones of the run are kept.
/// \return what was put aside.
/// \throws IoError if something cannot be written; what was there before is as
///         it was.
std::vector<std::filesystem::path> write_checkpoint(
    const std::filesystem::path& folder,
    const Checkpoint& checkpoint,
    const WriteCheckpointOptions& options = {});

/// Reads `folder`, one step's or the newest good one of a run, and checks
/// every byte against the manifest.
/// \param problems  Gets a sentence for each newer checkpoint that is damaged.
/// \throws CheckpointError if there is none that is whole.
Checkpoint read_checkpoint(
    const std::filesystem::path& folder,
    std::vector<std::string>& problems);

/// Removes what killed programs left half written or half removed. Only for the
/// holder of the folder's RunLock.
void remove_unfinished_checkpoints(const std::filesystem::path& folder);

/// Which training a step's folder is of; empty if its manifest is damaged.
std::string run_of_checkpoint(const std::filesystem::path& step);

/// The names of the checkpoints in a run's folder, the newest first.
std::vector<std::filesystem::path> list_checkpoints(
    const std::filesystem::path& folder);

/// Keeps other programs from writing checkpoints into a folder. The system
/// gives it up when the program ends, however it ends.
class RunLock {
 public:
  /// Creates the folder.
  /// \throws CheckpointError naming the holder if another program, or another
  ///         Learner of this one, has it; IoError.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  FileHandle file_;
};

}  // namespace tern
