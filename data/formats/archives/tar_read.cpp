#include "tern/data/formats/archives/tar_read.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "tern/data/formats/archives/gzip.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kBlock = 512;
// tar pads its last record, to 10 KB by default.
constexpr uint64_t kMaxPadding = uint64_t{1} << 20;
constexpr size_t kHeaderBuffer = 4096, kBuffer = 1 << 16;
constexpr const char* kOtherSize =
    "is a sparse file, or its size differs from the archive's header";

void refuse_compressed(const ByteFile& file) {
  const auto head = file.read(0, std::min<uint64_t>(4, file.size()));
  const bool is_gzip = as_text(head).starts_with("\x1f\x8b");
  if (is_gzip || as_text(head) == "\x28\xb5\x2f\xfd") {
    throw DataError(
        file.path(),
        std::string("is compressed with ") + (is_gzip ? "gzip" : "zstd") +
            ", but shards are read in place. Unpack it to a plain .tar; its "
            "images are compressed already.");
  }
}

// Returns the name of an entry as raw bytes, independent of the locale.
std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);
  return name != nullptr ? name : "";
}

// Returns why an entry is rejected, such as "is a symbolic link"; null if it is
// a regular file or a folder whose name stays inside the target folder.
const char* fault_of(archive_entry* entry, const std::string& name) {
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

uint64_t end_of(const TarMember& member) {
  return member.offset + (member.size + kBlock - 1) / kBlock * kBlock;
}

// Iterates over the entries of a tar archive; libarchive parses it.
class TarReader {
 public:
  struct Entry {
    TarMember member;
    bool is_folder = false;
  };
  // Fills the span with the next bytes of the archive; returns fewer only at
  // its end.
  using Give = std::function<size_t(std::span<uint8_t>)>;
  // Skips this many bytes, and returns how many were skipped.
  using Skip = std::function<uint64_t(uint64_t)>;

  // Without `skip`, bytes to be skipped are read instead.
  TarReader(std::string path, int64_t max_entries, Give give, Skip skip = {})
      : path_(std::move(path)),
        max_entries_(max_entries),
        give_(std::move(give)),
        skip_(std::move(skip)),
        buffer_(skip_ ? kHeaderBuffer : kBuffer) {
    if (!archive_) throw std::bad_alloc();
    archive* const archive = archive_.get();
    archive_read_support_format_tar(archive);
    archive_read_set_callback_data(archive, this);
    archive_read_set_read_callback(archive, &TarReader::give_bytes);
    if (skip_) archive_read_set_skip_callback(archive, &TarReader::skip_bytes);
    if (archive_read_open1(archive) != ARCHIVE_OK) fail();
  }

  // Returns the next file or folder; unset at the end.
  std::optional<Entry> next() {
    const uint64_t end = end_of(at_);
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    const auto header =
        static_cast<uint64_t>(archive_read_header_position(archive_.get()));
    if (result != ARCHIVE_FATAL && header != end) refuse(kOtherSize);
    if (!at_.name.empty()) last_whole_ = printable(at_.name);
    const auto position =
        static_cast<uint64_t>(archive_filter_bytes(archive_.get(), 0));
    if (result == ARCHIVE_EOF) {
      // libarchive treats the end of the file as the end of the archive.
      if (position < end + kBlock) {
        fail("has no end-of-archive block, so it is truncated");
      }
      return std::nullopt;
    }
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail();
    at_ = {
        name_of(entry),
        position,
        static_cast<uint64_t>(archive_entry_size(entry))};
    read_ = 0;
    if (const char* fault = fault_of(entry, at_.name)) refuse(fault);
    if (++entries_ > max_entries_) {
      throw DataError(
          path_,
          "holds more than the " + std::to_string(max_entries_) +
              " entries that are allowed. Write more, smaller archives.");
    }
    return Entry{at_, archive_entry_filetype(entry) == AE_IFDIR};
  }

  // Returns the next bytes of the entry; empty at its end. Returns only bytes
  // of the archive: `archive_read_data` would fill gaps with any number of
  // zeros.
  std::span<const uint8_t> read() {
    const void* bytes = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int result =
        archive_read_data_block(archive_.get(), &bytes, &size, &offset);
    if (result == ARCHIVE_EOF) {
      if (read_ != at_.size) refuse(kOtherSize);
      return {};
    }
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail();
    const bool is_next = static_cast<uint64_t>(offset) == read_;
    if (!is_next || size == 0 || size > at_.size - read_) refuse(kOtherSize);
    read_ += size;
    return {static_cast<const uint8_t*>(bytes), size};
  }

  // Throws a DataError about the entry.
  [[noreturn]] void refuse(const std::string& fault) const {
    throw DataError(
        path_,
        "its entry " + printable(at_.name) + " " + fault +
            "; expected regular files and folders inside the archive's own "
            "folder. Create the archive again without this entry.");
  }

  // Throws a DataError that names the last whole file.
  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(
        path_,
        fault +
            (last_whole_.empty()
                 ? "; none of its files is complete"
                 : "; the last complete file is " + last_whole_) +
            ". Download or create it again.");
  }

 private:
  [[noreturn]] void fail() const {
    if (error_) std::rethrow_exception(error_);
    const char* reason = archive_error_string(archive_.get());
    fail(
        std::string("is not a tar archive, or is damaged or truncated (") +
        (reason != nullptr ? reason : "unknown error") + ")");
  }

  static la_ssize_t
  give_bytes(archive* archive, void* self, const void** bytes) {
    auto& reader = *static_cast<TarReader*>(self);
    try {
      *bytes = reader.buffer_.data();
      return static_cast<la_ssize_t>(reader.give_(reader.buffer_));
    } catch (...) {  // must not pass through C; `fail` rethrows it
      reader.error_ = std::current_exception();
      archive_set_error(archive, EIO, "read failed");
      return ARCHIVE_FATAL;
    }
  }

  static la_int64_t skip_bytes(archive*, void* self, la_int64_t request) {
    const auto bytes = std::max<la_int64_t>(request, 0);
    return static_cast<la_int64_t>(
        static_cast<TarReader*>(self)->skip_(static_cast<uint64_t>(bytes)));
  }

  std::string path_;
  int64_t max_entries_, entries_ = 0;
  Give give_;
  Skip skip_;
  std::vector<uint8_t> buffer_;
  std::exception_ptr error_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_{
      archive_read_new(),
      archive_read_free};
  TarMember at_;       // the entry returned last
  uint64_t read_ = 0;  // bytes of it read so far
  std::string last_whole_;
};

void write_entry(TarReader& reader, const fs::path& path) {
  const FileHandle file =
      open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  while (true) {
    const auto bytes = reader.read();
    if (bytes.empty()) return;
    write_all(file, bytes, path);
  }
}

}  // namespace

std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members) {
  refuse_compressed(file);
  uint64_t at = 0;
  TarReader reader(
      file.path(),
      max_members,
      [&](std::span<uint8_t> bytes) {
        const size_t n = std::min<uint64_t>(file.size() - at, bytes.size());
        file.read(at, bytes.first(n));
        at += n;
        return n;
      },
      [&](uint64_t bytes) {
        const uint64_t n = std::min(file.size() - at, bytes);
        at += n;
        return n;
      });
  std::vector<TarMember> members;
  uint64_t end = 0;
  while (auto entry = reader.next()) {
    TarMember& member = entry->member;
    if (member.offset > file.size() ||
        member.size > file.size() - member.offset) {
      reader.fail(
          "is truncated inside its entry " + printable(member.name) + " of " +
          std::to_string(member.size) + " bytes");
    }
    end = end_of(member);
    if (!entry->is_folder) members.push_back(std::move(member));
  }
  // libarchive does not check the data after the archive's end.
  const std::vector<uint8_t> rest =
      file.read(end, std::min(file.size() - end, kMaxPadding));
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  if (file.size() - end > kMaxPadding ||
      !std::all_of(rest.begin(), rest.end(), is_zero)) {
    reader.fail(
        "has data after the end-of-archive marker, like concatenated archives");
  }
  return members;
}

void extract_tar(
    const fs::path& archive,
    const fs::path& folder,
    const ExtractOptions& options) {
  // libarchive does not check gzip's CRC; this reader does.
  const ByteFile file(archive);
  GzipReader bytes(file, options.max_bytes);
  const auto total = static_cast<int64_t>(file.size());
  TarReader reader(
      archive.string(),
      options.max_entries,
      [&](std::span<uint8_t> buffer) {
        const size_t n = bytes.read(buffer);
        if (options.progress) options.progress(bytes.bytes_in(), total);
        return n;
      });
  fs::path last_parent = folder;
  bool is_empty = true;
  auto room = static_cast<uint64_t>(options.max_bytes);
  while (const auto entry = reader.next()) {
    is_empty = false;
    // The folder is new and contains no links, so names alone determine where
    // files go.
    const std::string& name = entry->member.name;
    const fs::path path = (folder / name).lexically_normal();
    if (entry->is_folder) {
      make_folders(path);
      continue;
    }
    if (entry->member.size > room) {
      throw DataError(
          archive,
          "holds more than the limit of " + std::to_string(options.max_bytes) +
              " bytes: its entry " + printable(name) +
              " has a stated size of " + std::to_string(entry->member.size) +
              ". Raise max_bytes if you trust the archive.");
    }
    room -= entry->member.size;
    if (path.parent_path() != last_parent) {
      last_parent = path.parent_path();
      make_folders(last_parent);
    }
    try {
      write_entry(reader, path);
    } catch (const IoError& error) {
      if (error.error() != EEXIST) throw;
      throw DataError(archive, "entry " + printable(name) + " is duplicated.");
    }
  }
  if (is_empty) throw DataError(archive, "contains no file.");
  // The rest is padding, except for the checksum at the end of a gzip file.
  std::array<uint8_t, 4096> padding{};
  while (bytes.read(padding) > 0) {
  }
}

}  // namespace tern
