#include "tern/data/formats/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr size_t kWorthStarting = size_t{1} << 20;

fs::path folder_of(const fs::path& target) {
  return fs::absolute(target).parent_path();
}

// Prefix of the temporary names beside `target`.
std::string temp_prefix(const fs::path& target) {
  constexpr size_t kMaxStem = 200;  // a name has at most 255 bytes
  std::string prefix = ".";         // `+=`: GCC 12 warns about `"." + string`
  prefix += target.filename().string().substr(0, kMaxStem) + ".tmp-";
  return prefix;
}

fs::path temp_name_beside(const fs::path& target) {
  return folder_of(target) / (temp_prefix(target) + random_id());
}

// Calls `act(path)` for files that earlier writers left beside `target`.
template <class Act>
void for_each_leftover(const fs::path& target, const Act& act) {
  std::error_code error;
  const std::string prefix = temp_prefix(target);
  for (fs::directory_iterator at(folder_of(target), error), end;
       at != end && !error;
       at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) act(at->path());
  }
}

// A writer holds a lock on its file, so a file that can be locked has no writer
// any more.
void remove_if_lost(const fs::path& path) {
  const FileHandle file(
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.is_open() && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) {
    ::unlink(path.c_str());
  }
}

// Another writer may have removed the file as abandoned before it was locked.
// On a file system without locks (some NFS), abandoned files remain.
bool lock_and_still_there(const FileHandle& file, const fs::path& target) {
  lock_file(file);
  return file_status(file, target).st_nlink > 0;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  for_each_leftover(target_, remove_if_lost);
  do {
    path_ = temp_name_beside(target_);
    try {
      file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    } catch (const IoError& error) {
      throw IoError(target_, "create a file next to this one", error.error());
    }
  } while (!lock_and_still_there(file_, target_));
}

AtomicFile::~AtomicFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void AtomicFile::write(std::span<const uint8_t> bytes) {
  write_all(file_, bytes, target_);
  // Starts writing to the disk early, so that commit() takes less time.
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
  if (durable) sync_folder(folder_of(target_));
}

void AtomicFile::commit_with_sum(bool sum, bool durable) {
  // A failure before this line keeps the old file and its checksum; a program
  // killed after it leaves a file without a checksum.
  if (durable) sync();
  const fs::path list = sum_file(target_);
  std::error_code ignored;
  fs::remove(list, ignored);
  commit(durable);
  if (!sum) return;
  AtomicFile file(list);
  file.write(to_text({{target_.filename().string(), sha256_file(target_)}}));
  file.commit(durable);
}

StagingFolder::StagingFolder(fs::path target) : target_(std::move(target)) {
  make_folders(folder_of(target_));
  path_ = temp_name_beside(target_);
  if (::mkdir(path_.c_str(), 0755) != 0) {
    throw IoError(path_, "create this folder", errno);
  }
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

bool StagingFolder::publish(const fs::path& content) {
  if (::rename(content.c_str(), target_.c_str()) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) return false;
    throw IoError(target_, "rename the finished folder to this name", errno);
  }
  return true;
}

void StagingFolder::remove_leftovers(const fs::path& target) {
  for_each_leftover(target, [](const fs::path& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  });
}

std::string random_id() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

}  // namespace tern
