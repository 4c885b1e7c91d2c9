#include "tern/data/formats/archives/tar_shard.h"

#include <strings.h>
#include <unordered_set>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// Returns the position of the dot between key and field; npos for a file that
// belongs to no sample.
size_t first_dot(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  const bool is_field = dot != name.npos && dot > base && dot + 1 < name.size();
  return is_field ? dot : name.npos;
}

}  // namespace

TarShard::TarShard(std::filesystem::path path) : path_(std::move(path)) {
  // Taken before the index is read, to detect changes in between.
  stamp_ = stamp_of(*file());
  members_ = read_tar_index(ByteFile(path_));
  samples_ = tar_samples(members_, path_.string());
  if (samples_.empty()) {
    throw DataError(
        path_.string(),
        "contains no sample; expected files such as 0001.jpg and 0001.cls. "
        "Omit it.");
  }
}

TarShard::Stamp TarShard::stamp_of(const FileHandle& file) const {
  const struct stat status = file_status(file, path_);
  return {
      status.st_size,
      status.st_mtim.tv_sec,
      status.st_mtim.tv_nsec,
      static_cast<int64_t>(status.st_dev),
      static_cast<int64_t>(status.st_ino)};
}

std::string TarShard::version() const {
  return std::to_string(stamp_[0]) + " bytes, changed at " +
         std::to_string(stamp_[1]) + "." + std::to_string(stamp_[2]);
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
         printable(sample_key(samples_.at(sample).front().name));
}

void TarShard::read(const TarMember& member, std::span<uint8_t> bytes) const {
  const std::shared_ptr<const FileHandle> open = file();
  const bool is_same = stamp_of(*open) == stamp_;
  if (!is_same ||
      read_up_to(*open, bytes.first(member.size), path_, member.offset) !=
          member.size) {
    throw DataError(
        path_.string(),
        "was changed or replaced since it was opened, so " +
            printable(member.name) +
            " has moved. Restart with the new shard, and do not change shards "
            "while they are read.");
  }
}

std::string_view sample_key(std::string_view name) {
  return name.substr(0, first_dot(name));
}

std::string_view sample_field(std::string_view name) {
  const size_t dot = first_dot(name);
  return dot == name.npos ? std::string_view() : name.substr(dot + 1);
}

bool is_same_field(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<std::span<const TarMember>> tar_samples(
    std::vector<TarMember>& members,
    const std::string& path) {
  std::erase_if(members, [](const TarMember& member) {
    return sample_field(member.name).empty();
  });
  std::vector<std::span<const TarMember>> samples;
  std::unordered_set<std::string_view> keys;
  for (size_t i = 0; i < members.size();) {
    const std::string_view key = sample_key(members[i].name);
    if (!keys.insert(key).second) {
      throw DataError(
          path,
          "the files of its sample " + printable(key) + " are not adjacent; " +
              printable(members[i].name) +
              " follows a different sample. Create the shard with its files "
              "sorted by name, as `tar --sort=name` does.");
    }
    const size_t begin = i;
    for (; i < members.size() && sample_key(members[i].name) == key; ++i) {
      const std::string_view field = sample_field(members[i].name);
      for (size_t other = begin; other < i; ++other) {
        if (is_same_field(sample_field(members[other].name), field)) {
          throw DataError(
              path,
              "its sample " + printable(key) + " has " +
                  printable(members[i].name) +
                  " twice. Create the shard with distinct file names.");
        }
      }
    }
    samples.push_back(std::span(members).subspan(begin, i - begin));
  }
  return samples;
}

}  // namespace tern
