#include "tern/callbacks/logging/log_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace {

// Non-blocking, so that a pipe without a reader fails instead of waiting.
constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK;

// Number of bytes at a log's end that identify it: the times and losses in them
// are unique.
constexpr int64_t kTail = 64;

constexpr size_t kMaxPending = 256 << 10;

torch::Tensor bytes_of(const std::string& text) {
  const torch::Tensor bytes =
      torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

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
        "is a pipe or a socket; expected a regular file to log into.");
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
    // Removes the partly written record; not possible for a device.
    if (size >= 0) {
      [[maybe_unused]] const int result = ::ftruncate(file_.fd(), size);
    }
    warn_once(error, "records that cannot be written are missing from the log");
  }
}

void LogFile::add(std::string_view record) {
  pending_ += record;
  const auto age = std::chrono::steady_clock::now() - last_flush_;
  if (pending_.size() >= kMaxPending || age >= std::chrono::seconds(1)) flush();
}

void LogFile::flush() {
  if (!pending_.empty()) write(std::exchange(pending_, {}));
  last_flush_ = std::chrono::steady_clock::now();
}

void LogFile::warn_once(const IoError& error, const char* consequence) {
  if (std::exchange(has_warned_, true)) return;
  sink_->warning(fmt::format(
      "{}: {}. Training continues; {}.",
      owner_,
      error.what(),
      consequence));
}

// Returns [<= kTail] kByte: the bytes before `end`.
torch::Tensor LogFile::tail(int64_t end) const {
  const torch::Tensor bytes =
      torch::empty({std::min(kTail, end)}, torch::kByte);
  const auto size = static_cast<size_t>(bytes.numel());
  const size_t read = read_up_to(
      file_,
      {bytes.mutable_data_ptr<uint8_t>(), size},
      path_,
      static_cast<uint64_t>(end) - size);
  return bytes.narrow(0, 0, static_cast<int64_t>(read));
}

StateDict LogFile::place() {
  flush();
  StateDict place;
  try {
    const int64_t size = file_size(file_, path_);
    if (size == 0 && !std::filesystem::is_regular_file(path_)) return place;
    place.insert("file", bytes_of(path_.filename()));
    if (size == 0) return place;  // no bytes that identify it
    place.insert("size", torch::scalar_tensor(size, torch::kLong));
    place.insert("tail", tail(size));
  } catch (const IoError&) {
    // A checkpoint must not fail because of its log. A resumed run then appends
    // to the log.
  }
  return place;
}

bool LogFile::go_back_to(const StateDict& place) {
  const torch::Tensor* const size = place.find("size");
  const torch::Tensor* const bytes = place.find("tail");
  if (!size || !bytes) return false;
  const auto end = size->item<int64_t>();
  try {
    if (end <= 0 || end > file_size(file_, path_) ||
        !torch::equal(tail(end), *bytes)) {
      return false;
    }
    if (::ftruncate(file_.fd(), end) != 0) {
      throw IoError(path_, "shorten", errno);
    }
  } catch (const IoError& error) {
    warn_once(error, "the log may contain some records twice");
    return false;
  }
  return true;
}

}  // namespace tern
