#include "tern/callbacks/json_text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace tern {

namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 if it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80             ? 1
                        : (first & 0xe0) == 0xc0 ? 2
                        : (first & 0xf0) == 0xe0 ? 3
                        : (first & 0xf8) == 0xf0 ? 4
                                                 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = first == 0xc0 || first == 0xc1 ||
                           (first == 0xe0 && byte(1) < 0xa0) ||
                           (first == 0xf0 && byte(1) < 0x90);
  const bool is_outside = (first == 0xed && byte(1) >= 0xa0) || first > 0xf4 ||
                          (first == 0xf4 && byte(1) >= 0x90);
  return is_overlong || is_outside ? 0 : length;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + "\"";
}

}  // namespace tern
