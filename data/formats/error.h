#pragma once

#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace tern {

/// An error in a file or a sample, not in the program. `what()` names the
/// file, the problem and what to do.
class DataError : public std::runtime_error {
 public:
  DataError(std::string path, const std::string& reason)
      : std::runtime_error(path.empty() ? reason : path + ": " + reason),
        path_(std::move(path)) {}

  /// The file, folder or URL; empty if the data came from memory.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A file could not be opened, read, written or renamed. `what()` ends with the
/// operating system's reason.
class IoError : public DataError {
 public:
  IoError(const std::string& path, const std::string& action, int error)
      : DataError(
            path,
            "cannot " + action + ": " + std::generic_category().message(error) +
                " (errno " + std::to_string(error) + ")"),
        error_(error) {}
  int error() const { return error_; }

 private:
  int error_;
};

}  // namespace tern
