#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "tern/data/formats/file_io.h"
#include "tern/data/support/sink.h"
#include "tern/learner/state_dict.h"

namespace tern {

class IoError;  // data/formats/error.h

/// Seconds since 1970.
double unix_time();

/// A file that a logger appends records to. Once it is open, an error of the
/// disk does not end the training: the sink gets one warning, and what could
/// not be written is left out, never half written. It is flushed at the end.
class LogFile {
 public:
  /// Creates the file and the folders above it.
  /// \param owner   Name of the logger, for messages.
  /// \param append  Keeps what the file holds; else empties it.
  /// \throws IoError if it cannot be opened for writing, DataError if it is a
  ///         pipe or a socket, which could block.
  LogFile(
      std::string owner,
      const std::filesystem::path& path,
      bool append,
      Sink sink);

  ~LogFile() { flush(); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Appends all of `bytes` or nothing.
  void write(std::string_view bytes);
  /// The same, but once a second, in blocks of up to 256 KiB, and at `flush`.
  void add(std::string_view record);
  void flush();

  /// Flushes; returns where the file ends, for a checkpoint: its name and,
  /// unless it is empty, its length and its last bytes. Nothing if that cannot
  /// be read.
  StateDict place();
  /// Truncates the file to `place`.
  /// \return false if the file is shorter or has other content; then it is
  ///         unchanged.
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
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_;
  bool is_empty_ = true;
  bool has_told_ = false;
};

}  // namespace tern
