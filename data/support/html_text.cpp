#include "tern/data/support/html_text.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "tern/data/formats/text.h"

namespace tern {

namespace {

constexpr std::string_view kKeywords =
    " auto bool break case catch char class const const_cast constexpr "
    "continue default delete do double else enum explicit extern false "
    "final float for friend if inline int int32_t int64_t long mutable "
    "namespace new noexcept nullptr operator override private protected "
    "public requires return short signed size_t sizeof static struct "
    "static_assert static_cast switch template this throw true try "
    "typename uint8_t unsigned using virtual void while ";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the end of the first `mark` at or after `from`, or the end of the
// text.
size_t behind(std::string_view text, std::string_view mark, size_t from) {
  const size_t at = text.find(mark, from);
  return at == text.npos ? text.size() : at + mark.size();
}

// Returns the length of the string or character literal that `text` begins
// with.
size_t literal_length(std::string_view text) {
  if (text[0] == 'R') {
    const size_t open = std::min(text.find('('), text.size());
    const std::string close = fmt::format("){}\"", text.substr(2, open - 2));
    return behind(text, close, open);
  }
  size_t end = 1;
  while (end < text.size() && text[end] != text[0] && text[end] != '\n') {
    end += text[end] == '\\' ? 2 : 1;
  }
  return std::min(end + 1, text.size());
}

struct Token {
  size_t length;
  const char* kind;  // CSS class; null: none
};

Token first_token(std::string_view text, bool begins_line) {
  const char c = text[0];
  if (text.starts_with("//"))
    return {std::min(text.find('\n'), text.size()), "c"};
  if (text.starts_with("/*")) return {behind(text, "*/", 2), "c"};
  if (c == '#' && begins_line) {
    return {std::min(text.find('\n'), text.size()), "p"};
  }
  if (c == '"' || c == '\'' || text.starts_with("R\"")) {
    return {literal_length(text), "s"};
  }
  if (!is_word(c)) return {1, nullptr};
  size_t end = 1;
  const bool is_number = is_digit(c);
  while (end < text.size() &&
         (is_word(text[end]) ||
          (is_number && (text[end] == '.' || text[end] == '\'' ||
                         (text[end] == '-' && text[end - 1] == 'e'))))) {
    ++end;
  }
  const bool is_keyword =
      kKeywords.find(fmt::format(" {} ", text.substr(0, end))) !=
      kKeywords.npos;
  return {end, is_number ? "n" : is_keyword ? "k" : nullptr};
}

}  // namespace

std::string html_escape(std::string_view text) {
  constexpr std::string_view kSpecial = "<>&\"'";
  constexpr const char* kEscaped[] =
      {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    const bool is_control =
        static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
    if (length == 0 || is_control || c == 0x7f) {
      out += "\xef\xbf\xbd";
    } else if (const size_t at = kSpecial.find(c); at != kSpecial.npos) {
      out += kEscaped[at];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string highlight_cpp(std::string_view code) {
  std::string html;
  bool begins_line = true;
  while (!code.empty()) {
    const Token token = first_token(code, begins_line);
    const std::string_view text = code.substr(0, token.length);
    html += token.kind ? fmt::format(
                             "<span class=\"{}\">{}</span>",
                             token.kind,
                             html_escape(text))
                       : html_escape(text);
    begins_line = text == "\n" || (begins_line && text == " ");
    code.remove_prefix(text.size());
  }
  return html;
}

}  // namespace tern
