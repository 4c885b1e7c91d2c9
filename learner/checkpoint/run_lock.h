#pragma once

#include <filesystem>

#include "tern/data/formats/file_io.h"

namespace tern {

/// Keeps other programs from writing checkpoints into a folder. The system
/// gives it up when the program ends, however it ends.
class RunLock {
 public:
  /// Creates the folder. \throws CheckpointError naming the holder if another
  /// program, or another Learner of this one, has it; IoError.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  FileHandle file_;
};

}  // namespace tern
