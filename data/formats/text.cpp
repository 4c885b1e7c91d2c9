#include "tern/data/formats/text.h"

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tern {

std::string printable(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    text += is_control ? "\\x" + hex_digits({&c, 1}) : std::string(1, c);
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

bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string hex_digits(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace tern
