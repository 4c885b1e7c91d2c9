#include "tern/data/formats/tar_index.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>

#include "tern/data/formats/error.h"
#include "tern/data/formats/member_name.h"
#include "tern/data/formats/printable.h"

namespace tern {

namespace {

constexpr uint64_t kBlock = 512;
// tar fills its last record, of 10 KB unless told otherwise.
constexpr uint64_t kMaxPadding = uint64_t{1} << 20;

// Has libarchive read the headers and jump over what lies between.
class HeaderReader {
 public:
  explicit HeaderReader(const ByteFile& file)
      : file_(file), archive_(archive_read_new(), archive_read_free) {
    if (!archive_) throw std::bad_alloc();
    archive_read_support_format_tar(archive_.get());
    if (archive_read_open2(
            archive_.get(),
            this,
            nullptr,
            &HeaderReader::give_bytes,
            &HeaderReader::skip_bytes,
            nullptr) != ARCHIVE_OK) {
      fail();
    }
  }

  // The next entry, or null after the last.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return entry;
    if (result != ARCHIVE_EOF) fail();
    return nullptr;
  }

  // Where the bytes of the current entry begin.
  uint64_t position() const {
    return static_cast<uint64_t>(archive_filter_bytes(archive_.get(), 0));
  }

  void name_last(const std::string& name) { last_ = name; }

  [[noreturn]] void fail() {
    if (error_) std::rethrow_exception(error_);
    const char* reason = archive_error_string(archive_.get());
    fail(
        std::string("is no tar archive, damaged or cut off (") +
        (reason != nullptr ? reason : "unknown fault") + ")");
  }

  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(
        file_.path(),
        fault +
            (last_.empty() ? "; not one file of it is whole"
                           : "; the last whole file is " + last_) +
            ". Fetch or write it again");
  }

 private:
  static la_ssize_t give_bytes(archive* archive, void* self, const void** out) {
    auto& reader = *static_cast<HeaderReader*>(self);
    try {
      const uint64_t left = reader.file_.size() - reader.at_;
      const size_t n = std::min<uint64_t>(left, reader.buffer_.size());
      reader.file_.read(reader.at_, std::span(reader.buffer_).first(n));
      reader.at_ += n;
      *out = reader.buffer_.data();
      return static_cast<la_ssize_t>(n);
    } catch (...) {  // may not pass through C; `fail` throws it again
      reader.error_ = std::current_exception();
      archive_set_error(archive, EIO, "read failed");
      return ARCHIVE_FATAL;
    }
  }

  static la_int64_t skip_bytes(archive*, void* self, la_int64_t request) {
    auto& reader = *static_cast<HeaderReader*>(self);
    const uint64_t left = reader.file_.size() - reader.at_;
    const uint64_t n = std::min<uint64_t>(
        left,
        request > 0 ? static_cast<uint64_t>(request) : 0);
    reader.at_ += n;
    return static_cast<la_int64_t>(n);
  }

  const ByteFile& file_;
  uint64_t at_ = 0;
  std::array<uint8_t, 4096> buffer_{};
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
  std::exception_ptr error_;
  std::string last_;
};

void refuse_compressed(const ByteFile& file) {
  std::array<uint8_t, 4> magic{};
  file.read(0, std::span(magic).first(std::min<uint64_t>(4, file.size())));
  const bool is_gzip = magic[0] == 0x1f && magic[1] == 0x8b;
  const bool is_zstd = magic == std::array<uint8_t, 4>{0x28, 0xb5, 0x2f, 0xfd};
  if (is_gzip || is_zstd) {
    throw DataError(
        file.path(),
        std::string("is compressed with ") + (is_gzip ? "gzip" : "zstd") +
            ", and shards are read in place. Unpack it to a plain .tar; images "
            "in it are compressed by themselves");
  }
}

// libarchive takes the end of the file for the end of the archive, and looks
// at nothing that comes after it.
void check_end(const HeaderReader& reader, const ByteFile& file, uint64_t end) {
  if (file.size() < end + kBlock) {
    reader.fail("has no end-of-archive block, so it is cut off");
  }
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  const std::vector<uint8_t> rest =
      file.read(end, std::min(file.size() - end, kMaxPadding));
  if (file.size() - end > kMaxPadding ||
      !std::all_of(rest.begin(), rest.end(), is_zero)) {
    reader.fail(
        "goes on after the end of its archive, as several that were joined do");
  }
}

}  // namespace

std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members) {
  refuse_compressed(file);
  const auto reader = std::make_unique<HeaderReader>(file);
  std::vector<TarMember> members;
  uint64_t end = 0;
  int64_t entries = 0;
  while (archive_entry* entry = reader->next()) {
    std::string name = tar_entry_name(entry);
    if (const char* fault = tar_entry_fault(entry, name)) {
      throw DataError(
          file.path(),
          "its entry " + printable(name) + " " + fault +
              "; expected regular files inside the archive's own folder. Write "
              "it again without that");
    }
    if (++entries > max_members) {
      throw DataError(
          file.path(),
          "holds more than the " + std::to_string(max_members) +
              " entries that are allowed here. Write more, smaller shards");
    }
    const uint64_t begin = reader->position();
    const auto size = static_cast<uint64_t>(archive_entry_size(entry));
    if (begin > file.size() || size > file.size() - begin) {
      reader->fail(
          "is cut off in its file " + printable(name) + ", of " +
          std::to_string(size) + " bytes");
    }
    end = begin + (size + kBlock - 1) / kBlock * kBlock;
    reader->name_last(printable(name));
    if (archive_entry_filetype(entry) == AE_IFREG) {
      members.push_back({std::move(name), begin, size});
    }
  }
  check_end(*reader, file, end);
  return members;
}

std::string tar_entry_name(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);
  return name != nullptr ? name : "";
}

const char* tar_entry_fault(archive_entry* entry, const std::string& name) {
  if (const char* fault = member_name_fault(name)) return fault;
  if (archive_entry_hardlink(entry) != nullptr) return "is a hard link";
  if (archive_entry_sparse_count(entry) > 0) return "is a sparse file";
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
    case AE_IFDIR:
      return nullptr;
    case AE_IFLNK:
      return "is a symbolic link";
    default:
      return "is a device, a pipe or of an unknown type";
  }
}

}  // namespace tern
