#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/formats/byte_file.h"

struct archive_entry;

namespace tern {

/// A regular file in a tar archive.
struct TarMember {
  std::string name;
  /// Where its bytes are in the archive.
  uint64_t offset = 0, size = 0;
};

/// Lists the files of a plain tar archive, in its order, without reading them:
/// each can then be had by `file.read(member.offset, member.size)`. Folders are
/// left out.
///
/// \throws DataError naming the archive and the last file that is whole, if
///         the archive is compressed, damaged, cut off, goes on after its end,
///         or holds a link, a device, a sparse file, a name such as `../x`, or
///         more than `max_members` entries.
///
/// Reads some 4 KB for each file.
std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members = 5'000'000);

/// The name of an entry that libarchive found, as the bytes that it is.
std::string tar_entry_name(archive_entry* entry);

/// Why an entry is not taken, such as "is a symbolic link" or "has an absolute
/// name"; null if it may be: a regular file or a folder that stays inside.
const char* tar_entry_fault(archive_entry* entry, const std::string& name);

}  // namespace tern
