#include "tern/data/formats/tar_entry.h"

#include <archive_entry.h>

#include "tern/data/formats/member_name.h"

namespace tern {

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
