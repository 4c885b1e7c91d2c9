#pragma once

#include <string>

struct archive_entry;

namespace tern {

/// The name of an entry that libarchive found, as the bytes that it is.
std::string tar_entry_name(archive_entry* entry);

/// Why an entry is not taken, such as "is a symbolic link" or "has an absolute
/// name"; null if it may be: a regular file or a folder that stays inside.
const char* tar_entry_fault(archive_entry* entry, const std::string& name);

}  // namespace tern
