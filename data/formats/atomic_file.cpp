#include "tern/data/formats/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/random_id.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr size_t kWorthStarting = size_t{1} << 20;

// A writer holds a lock on its file, so a file that can be locked has lost its
// writer.
void remove_leftovers(const fs::path& target) {
  std::error_code error;
  const fs::path folder = fs::absolute(target).parent_path();
  const std::string prefix = temp_prefix(target);
  for (fs::directory_iterator at(folder, error), end; at != end && !error;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with(prefix)) continue;
    const FileHandle file(
        ::open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file.is_open() && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) {
      ::unlink(at->path().c_str());
    }
  }
}

// Another writer may have taken it for lost before it was locked. A file system
// without locks (some NFS) keeps what is lost.
bool lock_and_still_there(const FileHandle& file) {
  lock_file(file);
  struct stat info {};
  return ::fstat(file.fd(), &info) == 0 && info.st_nlink > 0;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  remove_leftovers(target_);
  do {
    path_ = temp_name_beside(target_);
    try {
      file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    } catch (const IoError& error) {
      path_.clear();
      if (error.error() == EEXIST) continue;
      throw IoError(target_, "create a file beside this one", error.error());
    }
  } while (path_.empty() || !lock_and_still_there(file_));
}

AtomicFile::~AtomicFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void AtomicFile::write(std::span<const uint8_t> bytes) {
  write_all(file_, bytes, target_);
  // The disk begins while more is written, so that commit() waits less.
  if (bytes.size() >= kWorthStarting) {
    ::sync_file_range(
        file_.fd(),
        static_cast<off64_t>(size_),
        static_cast<off64_t>(bytes.size()),
        SYNC_FILE_RANGE_WRITE);
  }
  size_ += bytes.size();
  is_synced_ = false;
}

void AtomicFile::write(std::string_view text) {
  write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void AtomicFile::sync() {
  if (!is_synced_) sync_file(file_, target_);
  is_synced_ = true;
}

void AtomicFile::commit(bool durable) {
  if (durable) sync();
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    throw IoError(target_, "rename the finished file to this name", errno);
  }
  path_.clear();
  if (durable) sync_folder(fs::absolute(target_).parent_path());
}

std::string temp_prefix(const fs::path& target) {
  constexpr size_t kMaxStem = 200;  // a name has at most 255 bytes
  std::string prefix = ".";         // `+=`, for GCC 12 warns of `"." + string`
  prefix += target.filename().string().substr(0, kMaxStem) + ".tmp-";
  return prefix;
}

fs::path temp_name_beside(const fs::path& target) {
  return fs::absolute(target).parent_path() /
         (temp_prefix(target) + random_id());
}

}  // namespace tern
