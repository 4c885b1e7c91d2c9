#include "tern/data/formats/tar_extract.h"

#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/gzip.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/staging_folder.h"
#include "tern/data/formats/tar_index.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kTarBlock = 512;

// One pass over an archive. libarchive takes tar apart; the bytes come through
// our own reader, which checks gzip's CRC where libarchive does not.
class TarReader {
 public:
  TarReader(const fs::path& path, const ExtractOptions& options)
      : path_(path),
        progress_(options.progress),
        total_(file_size(open_regular_file(path), path)),
        bytes_(path, {.max_bytes = options.max_bytes}),
        archive_(archive_read_new(), archive_read_free) {
    if (!archive_) throw std::bad_alloc();
    archive_read_support_format_tar(archive_.get());
    // Names stay the bytes that they are, whatever the locale.
    if (archive_read_open(
            archive_.get(),
            this,
            nullptr,
            &TarReader::give_bytes,
            nullptr) != ARCHIVE_OK) {
      fail();
    }
  }

  // The next entry, or null after the last.
  archive_entry* next() {
    // Where the entry before ends, with the padding of its last block.
    const int64_t end =
        (archive_filter_bytes(archive_.get(), 0) + kTarBlock - 1) / kTarBlock *
        kTarBlock;
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return entry;
    if (result != ARCHIVE_EOF) fail();
    // libarchive takes the end of the file for the end of the archive.
    if (archive_filter_bytes(archive_.get(), 0) < end + kTarBlock) {
      throw DataError(
          path_,
          "has no end-of-archive block; the file is cut off");
    }
    // What follows is padding, but for the checksum at the end of a gzip.
    while (bytes_.read(buffer_) > 0) {
    }
    return nullptr;
  }

  // The next bytes of the current entry; empty at its end.
  std::span<const uint8_t> read() {
    const la_ssize_t n =
        archive_read_data(archive_.get(), data_.data(), data_.size());
    if (n < 0) fail();
    return std::span(data_).first(static_cast<size_t>(n));
  }

  void name_entry(std::string name) { entry_ = std::move(name); }

 private:
  static la_ssize_t give_bytes(archive* archive, void* self, const void** out) {
    auto& reader = *static_cast<TarReader*>(self);
    try {
      const size_t n = reader.bytes_.read(reader.buffer_);
      if (reader.progress_) {
        reader.progress_(reader.bytes_.bytes_in(), reader.total_);
      }
      *out = reader.buffer_.data();
      return static_cast<la_ssize_t>(n);
    } catch (...) {  // may not pass through C; `fail` throws it again
      reader.error_ = std::current_exception();
      archive_set_error(archive, EIO, "read failed");
      return ARCHIVE_FATAL;
    }
  }

  [[noreturn]] void fail() {
    if (error_) std::rethrow_exception(error_);
    const char* reason = archive_error_string(archive_.get());
    throw DataError(
        path_,
        "is no tar archive, damaged, or cut off (" +
            std::string(reason != nullptr ? reason : "unknown fault") +
            (entry_.empty() ? "" : ", at entry " + entry_) +
            "). Fetch it again");
  }

  fs::path path_;
  ByteProgress progress_;
  int64_t total_;
  GzipReader bytes_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
  std::array<uint8_t, 1 << 16> buffer_{}, data_{};
  std::exception_ptr error_;
  std::string entry_;
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

void extract_tar_into(
    const fs::path& archive,
    const fs::path& folder,
    const ExtractOptions& options) {
  const auto reader = std::make_unique<TarReader>(archive, options);
  fs::path last_parent = folder;
  int64_t entries = 0;
  while (archive_entry* entry = reader->next()) {
    const std::string name = tar_entry_name(entry);
    reader->name_entry(printable(name));
    if (const char* fault = tar_entry_fault(entry, name)) {
      throw DataError(
          archive,
          "entry " + printable(name) + " " + fault +
              "; only regular files and folders inside the archive's own "
              "folder are extracted");
    }
    if (++entries > options.max_entries) {
      throw DataError(
          archive,
          "holds more than the " + std::to_string(options.max_entries) +
              " entries that are allowed here");
    }

    // The folder is ours and holds no links, so names decide where files go.
    const fs::path path = (folder / name).lexically_normal();
    if (archive_entry_filetype(entry) == AE_IFDIR) {
      make_folders(path);
      continue;
    }
    if (path.parent_path() != last_parent) {
      last_parent = path.parent_path();
      make_folders(last_parent);
    }
    try {
      write_entry(*reader, path);
    } catch (const IoError& error) {
      if (error.error() != EEXIST) throw;
      throw DataError(archive, "entry " + printable(name) + " is there twice");
    }
  }
  if (entries == 0) throw DataError(archive, "holds no file");
}

void extract_tar(
    const fs::path& archive,
    const fs::path& folder,
    const ExtractOptions& options) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    throw DataError(
        folder,
        "exists and is not empty, so " + archive.string() +
            " is not extracted there. Remove it or name another folder");
  }
  StagingFolder staging(folder);
  extract_tar_into(archive, staging.path(), options);
  staging.publish();
}

}  // namespace tern
