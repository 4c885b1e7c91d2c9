#include "tern/data/formats/tar_extract.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/gzip.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/staging_folder.h"
#include "tern/data/formats/tar_index.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

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
  // libarchive does not check gzip's CRC; this reader does.
  GzipReader bytes(archive, {.max_bytes = options.max_bytes});
  const int64_t total = file_size(open_regular_file(archive), archive);
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
  while (const auto entry = reader.next()) {
    is_empty = false;
    // The folder is ours and holds no links, so names decide where files go.
    const std::string& name = entry->member.name;
    const fs::path path = (folder / name).lexically_normal();
    if (entry->is_folder) {
      make_folders(path);
      continue;
    }
    if (path.parent_path() != last_parent) {
      last_parent = path.parent_path();
      make_folders(last_parent);
    }
    try {
      write_entry(reader, path);
    } catch (const IoError& error) {
      if (error.error() != EEXIST) throw;
      throw DataError(archive, "entry " + printable(name) + " is there twice");
    }
  }
  if (is_empty) throw DataError(archive, "holds no file");
  // What follows is padding, but for the checksum at the end of a gzip.
  std::array<uint8_t, 4096> padding{};
  while (bytes.read(padding) > 0) {
  }
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
