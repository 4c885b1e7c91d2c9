#include "tern/data/formats/archives/tar_shard.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// Where key and field part; npos for a file of no sample.
size_t first_dot(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  const bool is_field = dot != name.npos && dot > base && dot + 1 < name.size();
  return is_field ? dot : name.npos;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

TarShard::TarShard(std::filesystem::path path) : path_(std::move(path)) {
  // Before the index: a change while it is read is then found too.
  stamp_ = stamp_of(*file());
  samples_ = TarSamples(read_tar_index(ByteFile(path_)), path_.string());
  if (samples_.size() == 0) {
    throw DataError(
        path_.string(),
        "holds no sample; expected files such as 0001.jpg and 0001.cls. Leave "
        "it out");
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
         printable(sample_key(samples_[sample].front().name));
}

void TarShard::read(const TarMember& member, std::span<uint8_t> bytes) const {
  const std::shared_ptr<const FileHandle> open = file();
  const bool is_same = stamp_of(*open) == stamp_;
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

std::string_view sample_key(std::string_view name) {
  return name.substr(0, first_dot(name));
}

std::string_view sample_field(std::string_view name) {
  const size_t dot = first_dot(name);
  return dot == name.npos ? std::string_view() : name.substr(dot + 1);
}

bool is_same_field(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return lower(x) == lower(y);
  });
}

TarSamples::TarSamples(std::vector<TarMember> members, const std::string& path)
    : members_(std::move(members)) {
  std::erase_if(members_, [](const TarMember& member) {
    return sample_field(member.name).empty();
  });
  std::unordered_set<std::string_view> keys;
  std::string_view last;
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string_view name = members_[i].name;
    const std::string_view key = sample_key(name);
    if (begins_.empty() || key != last) {
      if (!keys.insert(key).second) {
        throw DataError(
            path,
            "the files of its sample " + printable(key) +
                " do not stand together; " + printable(name) +
                " comes after others. Write it with its files sorted by name, "
                "as `tar --sort=name` does");
      }
      begins_.push_back(static_cast<uint32_t>(i));
      last = key;
      continue;
    }
    for (size_t other = begins_.back(); other < i; ++other) {
      if (is_same_field(
              sample_field(members_[other].name),
              sample_field(name))) {
        throw DataError(
            path,
            "its sample " + printable(key) + " has " + printable(name) +
                " twice. Write it with one file of each name");
      }
    }
  }
}

std::span<const TarMember> TarSamples::operator[](int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const size_t begin = begins_.at(i);
  const size_t end = i + 1 < begins_.size() ? begins_[i + 1] : members_.size();
  return std::span(members_).subspan(begin, end - begin);
}

}  // namespace tern
