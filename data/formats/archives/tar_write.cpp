#include "tern/data/formats/archives/tar_write.h"

#include <archive.h>
#include <archive_entry.h>
#include <new>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

TarWriter::TarWriter(const std::filesystem::path& path)
    : path_(path.string()),
      file_(path),
      archive_(archive_write_new(), archive_write_free) {
  if (!archive_) throw std::bad_alloc();
  // GNU's format stores long names as raw bytes.
  check(archive_write_set_format_gnutar(archive_.get()));
  constexpr int kBufferBytes = 1 << 20;
  check(archive_write_set_bytes_per_block(archive_.get(), kBufferBytes));
  check(archive_write_set_bytes_in_last_block(archive_.get(), 1));
  check(archive_write_open(
      archive_.get(),
      this,
      nullptr,
      &TarWriter::take_bytes,
      nullptr));
}

TarWriter::~TarWriter() {
  // Freeing an open archive would write its end marker. archive_write_fail()
  // prevents that, but then libarchive leaks its buffer.
  is_abandoned_ = true;
  archive_.reset();
}

ssize_t
TarWriter::take_bytes(archive*, void* self, const void* bytes, size_t size) {
  auto& writer = *static_cast<TarWriter*>(self);
  if (writer.is_abandoned_) return static_cast<ssize_t>(size);
  try {
    const std::span part(static_cast<const uint8_t*>(bytes), size);
    writer.file_.write(part);
    writer.hash_.update(part);
  } catch (...) {  // must not pass through C; `check` rethrows it
    writer.error_ = std::current_exception();
    writer.is_abandoned_ = true;
  }
  return static_cast<ssize_t>(size);
}

void TarWriter::check(int result) {
  if (error_) std::rethrow_exception(error_);
  if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return;
  const char* reason = archive_error_string(archive_.get());
  throw DataError(
      path_,
      std::string("cannot be written as a tar archive: ") +
          (reason != nullptr ? reason : "unknown error"));
}

void TarWriter::add(const std::string& name, std::span<const uint8_t> bytes) {
  if (const char* fault = member_name_fault(name)) {
    throw DataError(
        path_,
        "would contain a file " + printable(name) + ", which " + fault +
            "; expected a name inside the archive's own folder.");
  }
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(
      archive_entry_new(),
      archive_entry_free);
  if (!entry) throw std::bad_alloc();
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), 0, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
  check(archive_write_header(archive_.get(), entry.get()));
  const la_ssize_t written =
      archive_write_data(archive_.get(), bytes.data(), bytes.size());
  if (written != static_cast<la_ssize_t>(bytes.size())) check(ARCHIVE_FATAL);
}

std::string TarWriter::finish() {
  check(archive_write_close(archive_.get()));
  file_.commit();
  return hash_.hex_digest();
}

}  // namespace tern
