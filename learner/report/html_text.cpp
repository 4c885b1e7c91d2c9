#include "tern/learner/report/html_text.h"

#include <algorithm>

#include "tern/data/formats/utf8.h"

namespace tern {

namespace {

// Bytes of the character that `text` begins with; 0 if it is no UTF-8.
size_t character(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size());
       ++length) {
    if (is_utf8(text.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = character(text);
    const char c = text[0];
    const bool is_control =
        static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
    if (length == 0 || is_control || c == 0x7f) {
      out += "\xef\xbf\xbd";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace tern
