#include "tern/data/formats/member_name.h"

#include <cctype>
#include <filesystem>

namespace tern {

const char* member_name_fault(std::string_view name) {
  if (name.empty()) return "has an empty name";
  if (name[0] == '/') return "has an absolute name";
  if (name.find('\\') != name.npos) return "has a backslash in its name";
  if (name.find('\0') != name.npos) return "has a zero byte in its name";
  if (name.size() > 1 && name[1] == ':' &&
      std::isalpha(static_cast<unsigned char>(name[0])) != 0) {
    return "has a name with a drive letter";
  }
  if (name.size() > 4000) return "has a name of more than 4000 bytes";
  for (const std::filesystem::path& part : std::filesystem::path(name)) {
    if (part == "..") return "has a name that leaves the folder";
  }
  return nullptr;
}

}  // namespace tern
