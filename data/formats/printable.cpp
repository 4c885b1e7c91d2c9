#include "tern/data/formats/printable.h"

#include <cctype>
#include <filesystem>

namespace tern {

std::string printable(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + (name.size() > 200 ? "...'" : "'");
}

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
