#include "tern/callbacks/log_file.h"

#include <chrono>
#include <fcntl.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace {

// Non-blocking: a pipe without a reader fails instead of waiting for one.
constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK;

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

LogFile::LogFile(
    std::string owner,
    const std::filesystem::path& path,
    bool append,
    Sink sink)
    : owner_(std::move(owner)), path_(path), sink_(std::move(sink)) {
  if (path.has_parent_path()) make_folders(path.parent_path());
  file_ = open_file(path, append ? kFlags : kFlags | O_TRUNC);
  struct stat status {};
  if (::fstat(file_.fd(), &status) != 0) {
    throw IoError(path.string(), "inspect", errno);
  }
  if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
    throw DataError(
        path.string(),
        "is a pipe or a socket; expected a regular file to log into");
  }
  is_empty_ = status.st_size == 0;
}

void LogFile::write(std::string_view bytes) {
  int64_t size = -1;
  try {
    size = file_size(file_, path_);
    write_all(
        file_,
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
        path_);
    is_empty_ = false;
  } catch (const IoError& error) {
    // Takes back the part of the record that got through; a device has none.
    if (size >= 0) {
      [[maybe_unused]] const int result = ::ftruncate(file_.fd(), size);
    }
    if (has_told_) return;
    has_told_ = true;
    sink_->warning(fmt::format(
        "{}: {}. Training goes on; what cannot be written is left out of the "
        "log.",
        owner_,
        error.what()));
  }
}

}  // namespace tern
