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

/// Returns the seconds since 1970.
double unix_time();

/// A file that a logger appends records to. Once it is open, disk errors do not
/// end training: the sink gets one warning, and a record that cannot be written
/// is dropped as a whole. The destructor flushes it.
class LogFile {
 public:
  /// Creates the file and its parent folders.
  /// \param owner   Name of the logger, for messages.
  /// \param append  Keeps the file's content; otherwise truncates it.
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
  /// The same, but buffered. The buffer is written when it reaches 256 KiB,
  /// when a record is added a second or more after the last write, by `flush`,
  /// and by the destructor.
  void add(std::string_view record);
  void flush();

  /// Flushes and returns the end of the file for a checkpoint: its name and,
  /// unless it is empty, its length and last bytes. Empty if these cannot be
  /// read.
  StateDict place();
  /// Truncates the file to `place`.
  /// \return false, without a change, if the file is shorter or its content
  ///         differs.
  bool go_back_to(const StateDict& place);

  bool is_empty() const { return is_empty_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  torch::Tensor tail(int64_t end) const;
  void warn_once(const IoError& error, const char* consequence);

  std::string owner_;
  std::filesystem::path path_;
  Sink sink_;
  FileHandle file_;
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_;
  bool is_empty_ = true;
  bool has_warned_ = false;
};

}  // namespace tern
