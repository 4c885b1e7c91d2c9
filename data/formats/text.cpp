#include "tern/data/formats/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>

namespace tern {

std::string printable(std::string_view name) {
  std::string text = "'";
  for (std::string_view rest = name.substr(0, 200); !rest.empty();) {
    const auto byte = static_cast<unsigned char>(rest[0]);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    const size_t length = is_control ? 0 : utf8_length(rest);
    text += length == 0 ? "\\x" + hex_digits(rest.substr(0, 1))
                        : std::string(rest.substr(0, length));
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return text + (name.size() > 200 ? "...'" : "'");
}

const char* member_name_fault(std::string_view name) {
  if (name.empty()) return "has an empty name";
  if (name[0] == '/') return "has an absolute path as its name";
  if (name.find('\\') != name.npos) return "has a backslash in its name";
  if (name.find('\0') != name.npos) return "has a zero byte in its name";
  if (name.size() > 1 && name[1] == ':' &&
      std::isalpha(static_cast<unsigned char>(name[0])) != 0) {
    return "has a name with a drive letter";
  }
  if (name.size() > 4000) return "has a name of more than 4000 bytes";
  for (const std::filesystem::path& part : std::filesystem::path(name)) {
    if (part == "..") return "has a name that leads out of the folder";
  }
  return nullptr;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t more = first < 0x80   ? 0
                        : first < 0xc2 ? 4  // the middle of a character
                        : first < 0xe0 ? 1
                        : first < 0xf0 ? 2
                        : first < 0xf5 ? 3
                                       : 4;
    if (more == 4 || text.size() - i <= more) return false;
    uint32_t code = more == 0 ? first : first & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if ((byte & 0xc0) != 0x80) return false;
      code = code << 6 | (byte & 0x3f);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000) ||
        (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) {
      return false;
    }
    i += 1 + more;
  }
  return true;
}

size_t utf8_length(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size());
       ++length) {
    if (is_utf8(text.substr(0, length))) return length;
  }
  return 0;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
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
