#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/formats/byte_file.h"

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

}  // namespace tern
