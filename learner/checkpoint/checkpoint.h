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

/// Thrown if a folder contains no checkpoint that can be resumed, or if the
/// checkpoint does not fit this program. `what()` reports which of the two
/// happened and what to do.
class CheckpointError : public DataError {
 public:
  using DataError::DataError;
};

class Learner;

/// True if `folder` contains a checkpoint that `Learner::resume` would try. A
/// relative path starts from the current folder.
bool has_checkpoint(const std::filesystem::path& folder);
/// The same for the folder that `learn.resume(folder)` reads: a relative path
/// starts from LearnerOptions::path.
bool has_checkpoint(const Learner& learn, const std::filesystem::path& folder);

struct ResumeOptions {
  /// Resume even if the size of the data, the batch size, the classes, the
  /// learning rates, the weight decay or the number of epochs have changed
  /// since the checkpoint was written. The result then differs from an
  /// uninterrupted run. A checkpoint of a different model is always rejected.
  bool allow_change = false;
  /// Do nothing if the folder contains no checkpoint, so that the same command
  /// starts and restarts a run.
  ///
  ///   learn.resume("run", {.if_exists = true});
  ///   learn.add<tern::SaveCheckpoint>({.folder = "run"}).fit_one_cycle(10);
  bool if_exists = false;
};

/// Everything needed to continue a Learner's training exactly.
struct Checkpoint {
  std::string run;   // id of the run, kept when it is resumed
  int64_t step = 0;  // completed training batches
  /// fp32 weights (the master weights) and buffers, by Python's names. On the
  /// CPU.
  StateDict model;
  StateDict optimizer;  // as returned by optim::named_state
  StateDict training;   // position, random numbers, callbacks, ...
  /// Descriptions of the settings that must be the same in the resuming
  /// program.
  std::map<std::string, std::string> settings;
  std::filesystem::path folder = {};  // the folder from which it was read
};

struct WriteCheckpointOptions {
  /// Number of checkpoints to keep; older checkpoints are removed once the new
  /// one is safely written. 0: all are kept.
  int64_t keep = 0;
  /// Wait until everything is on the disk. Without this, a killed program still
  /// loses nothing, but a power failure may lose the newest checkpoint.
  bool durable = true;
  /// The last step that this run shares with the checkpoints in the folder. The
  /// run's checkpoints of later steps belong to an abandoned branch and are
  /// renamed. Unset: they are not renamed.
  std::optional<int64_t> branch_step = std::nullopt;
};

/// Writes `folder/step_<n>`: three safetensors files and a manifest with their
/// SHA-256. All files are on the disk before the folder gets its final name;
/// then `folder/latest` is set to it. An existing checkpoint of this step with
/// the same content is kept; a checkpoint with different weights is renamed to
/// `step_<n>.replaced-<i>`, a damaged checkpoint to `step_<n>.damaged-<i>`.
/// `resume` does not try renamed checkpoints automatically. The last `keep`
/// replaced checkpoints of this run are kept.
/// \return the folders that were renamed.
/// \throws IoError if something cannot be written; existing checkpoints are
///         then unchanged.
std::vector<std::filesystem::path> write_checkpoint(
    const std::filesystem::path& folder,
    const Checkpoint& checkpoint,
    const WriteCheckpointOptions& options = {});

/// Reads the checkpoint of one step, or the newest intact checkpoint in a run's
/// folder, and checks every byte against the manifest.
/// \param problems  Receives a sentence for each newer checkpoint that is
///                  damaged.
/// \throws CheckpointError if there is no intact checkpoint.
Checkpoint read_checkpoint(
    const std::filesystem::path& folder,
    std::vector<std::string>& problems);

/// Removes checkpoints that killed programs have only partly written or
/// removed. Only the holder of the folder's RunLock may call it.
void remove_unfinished_checkpoints(const std::filesystem::path& folder);

/// Returns the run id of a checkpoint's folder; empty if its manifest is
/// damaged.
std::string run_of_checkpoint(const std::filesystem::path& step);

/// Returns the paths of the checkpoints in a run's folder, newest first.
std::vector<std::filesystem::path> list_checkpoints(
    const std::filesystem::path& folder);

/// Prevents other programs from writing checkpoints into a folder. The system
/// releases the lock when the program ends, even if it is killed.
class RunLock {
 public:
  /// Creates the folder.
  /// \throws CheckpointError with the holder's name if another program, or
  ///         another Learner of this program, has the lock; IoError.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  FileHandle file_;
};

}  // namespace tern
