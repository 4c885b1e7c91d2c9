#include "tern/data/formats/tar_shard.h"

#include <cerrno>
#include <sys/stat.h>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/printable.h"

namespace tern {

TarShard::TarShard(std::filesystem::path path) : path_(std::move(path)) {
  // Before the index: a change while it is read is then found too.
  stamp_ = stamp_of(*file(), path_);
  samples_ = TarSamples(read_tar_index(ByteFile(path_)), path_.string());
  if (samples_.size() == 0) {
    throw DataError(
        path_.string(),
        "holds no sample; expected files such as 0001.jpg and 0001.cls. Leave "
        "it out");
  }
}

TarShard::Stamp TarShard::stamp_of(
    const FileHandle& file,
    const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) throw IoError(path, "inspect", errno);
  return {
      status.st_dev,
      status.st_ino,
      status.st_size,
      status.st_mtim.tv_sec,
      status.st_mtim.tv_nsec};
}

std::string TarShard::version() const {
  return std::to_string(stamp_.size) + " bytes, changed at " +
         std::to_string(stamp_.seconds) + "." +
         std::to_string(stamp_.nanoseconds);
}

std::shared_ptr<const FileHandle> TarShard::file() const {
  const std::lock_guard lock(mutex_);
  if (!file_) {
    file_ = std::make_shared<const FileHandle>(open_regular_file(path_));
  }
  return file_;
}

void TarShard::close() const {
  const std::lock_guard lock(mutex_);
  file_.reset();
}

std::string TarShard::describe(int64_t sample) const {
  return path_.string() + ", sample " +
         printable(sample_key(samples_[sample].front().name));
}

void TarShard::read(const TarMember& member, std::span<uint8_t> bytes) const {
  const std::shared_ptr<const FileHandle> open = file();
  const bool is_same = stamp_of(*open, path_) == stamp_;
  if (!is_same ||
      read_up_to_at(*open, member.offset, bytes.first(member.size), path_) !=
          member.size) {
    throw DataError(
        path_.string(),
        "was changed or replaced since it was opened, so that " +
            printable(member.name) +
            " is no longer where it was. Start again with the new shard, and "
            "leave shards alone while they are read");
  }
}

}  // namespace tern
