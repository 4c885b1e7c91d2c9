#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tern/data/formats/file_io.h"
#include "tern/learner/sink.h"
#include "tern/learner/state_dict.h"

namespace tern {

class IoError;  // data/formats/error.h

/// Seconds since 1970.
double unix_time();

/// A file that a logger adds records to. Once it is open, trouble with the disk
/// does not end a training: the sink is told once, and what could not be
/// written is left out, never half written.
class LogFile {
 public:
  /// Creates the file and the folders above it.
  /// \param owner   Name of the logger, for messages.
  /// \param append  Goes on behind what the file holds; else empties it.
  /// \throws IoError if it cannot be opened for writing, DataError if it is a
  ///         pipe or a socket, which could block.
  LogFile(
      std::string owner,
      const std::filesystem::path& path,
      bool append,
      Sink sink);

  /// Adds all of `bytes` or nothing.
  void write(std::string_view bytes);

  /// Where the file ends, for a checkpoint: its length and its last bytes.
  /// Empty if that cannot be said.
  StateDict place() const;
  /// Cuts off what was written after `place()` gave this.
  /// \return false if the file is shorter or another, and stays as it is.
  bool go_back_to(const StateDict& place);

  bool is_empty() const { return is_empty_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  torch::Tensor tail(int64_t end) const;
  void tell(const IoError& error, const char* consequence);

  std::string owner_;
  std::filesystem::path path_;
  Sink sink_;
  FileHandle file_;
  bool is_empty_ = true;
  bool has_told_ = false;
};

}  // namespace tern
