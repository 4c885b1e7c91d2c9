#include "tern/data/formats/json_reader.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "tern/data/formats/error.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/utf8.h"

namespace tern {

namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_surrogate(uint32_t code, uint32_t first) {
  return code >= first && code < first + 0x400;
}

void add_utf8(uint32_t code, std::string& text) {
  const auto add = [&](uint32_t bits) { text += static_cast<char>(bits); };
  const auto more = [&](int shift) { add(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    more(0);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    more(6);
    more(0);
  } else {
    add(0xf0 | code >> 18);
    more(12);
    more(6);
    more(0);
  }
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string path)
    : text_(text), path_(std::move(path)) {
  if (!is_utf8(text)) throw DataError(path_, "holds JSON that is not UTF-8");
}

void JsonReader::fail(const std::string& reason) const {
  throw DataError(
      path_,
      "holds damaged JSON at byte " + std::to_string(at_) + ": " + reason);
}

// The next character that is no white space, or 0 at the end.
char JsonReader::next_char() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonReader::expect(char c) {
  if (next_char() != c || at_ == text_.size()) {
    fail(std::string("expected '") + c + "'");
  }
  ++at_;
}

void JsonReader::begin_object() {
  expect('{');
  levels_.emplace_back();
}

void JsonReader::begin_array() {
  expect('[');
  levels_.emplace_back();
}

// Steps over the comma before the next item, or over the end.
bool JsonReader::next_item(char close) {
  if (next_char() == close && at_ < text_.size()) {
    ++at_;
    levels_.pop_back();
    return false;
  }
  if (!levels_.back().is_first) expect(',');
  levels_.back().is_first = false;
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!next_item('}')) return false;
  key = string();
  if (!levels_.back().keys.insert(key).second) {
    fail("the key " + printable(key) + " is there twice");
  }
  expect(':');
  return true;
}

bool JsonReader::next_element() {
  return next_item(']');
}

uint32_t JsonReader::hex4() {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const char low = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      code = code << 4 | static_cast<uint32_t>(c - '0');
    } else if (low >= 'a' && low <= 'f') {
      code = code << 4 | static_cast<uint32_t>(low - 'a' + 10);
    } else {
      fail("expected four hexadecimal digits");
    }
  }
  return code;
}

// What follows a backslash.
void JsonReader::add_escape(std::string& text) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
  const char c = at_ < text_.size() ? text_[at_++] : '\0';
  const size_t letter = kLetters.find(c);
  if (letter != kLetters.npos) {
    text += kMeant[letter];
    return;
  }
  if (c != 'u') fail("expected an escape such as \\n");
  uint32_t code = hex4();
  if (is_surrogate(code, 0xd800)) {
    if (text_.substr(at_, 2) != "\\u") fail("half a surrogate pair");
    at_ += 2;
    const uint32_t low = hex4();
    if (!is_surrogate(low, 0xdc00)) fail("half a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (is_surrogate(code, 0xdc00)) {
    fail("half a surrogate pair");
  }
  add_utf8(code, text);
}

std::string JsonReader::string() {
  expect('"');
  std::string text;
  while (true) {
    if (at_ == text_.size()) fail("the text ends within a string");
    const char c = text_[at_++];
    if (c == '"') return text;
    if (c == '\\') {
      add_escape(text);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fail("a control character in a string");
    } else {
      text += c;
    }
  }
}

int64_t JsonReader::integer() {
  if (!is_digit(next_char())) fail("expected a whole number");
  const size_t begin = at_;
  int64_t number = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, text_[at_] - '0', &number)) {
      fail("a number of more than 63 bits");
    }
  }
  if (text_[begin] == '0' && at_ - begin > 1) fail("a number that begins in 0");
  const char after = at_ < text_.size() ? text_[at_] : ' ';
  if (after == '.' || after == 'e' || after == 'E') {
    fail("expected a whole number");
  }
  return number;
}

int64_t JsonReader::signed_integer() {
  if (next_char() != '-') return integer();
  ++at_;
  if (at_ == text_.size() || !is_digit(text_[at_])) {
    fail("expected a digit after the minus");
  }
  return -integer();
}

double JsonReader::number() {
  if (take("null")) return std::numeric_limits<double>::quiet_NaN();
  const char first = next_char();
  if (first != '-' && !is_digit(first)) fail("expected a number");
  const char* const begin = text_.data() + at_;
  const char* const digits = begin + (first == '-' ? 1 : 0);
  const char* const text_end = text_.data() + text_.size();
  double value = 0;
  const auto [end, error] = std::from_chars(begin, text_end, value);
  if (error != std::errc() || digits == text_end || !is_digit(*digits)) {
    fail("expected a number that a double can hold");
  }
  at_ += static_cast<size_t>(end - begin);
  return value;
}

bool JsonReader::boolean() {
  if (take("true")) return true;
  if (!take("false")) fail("expected true or false");
  return false;
}

// Steps over a word if it comes next.
bool JsonReader::take(std::string_view word) {
  next_char();
  if (!text_.substr(at_).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

void JsonReader::end() {
  next_char();
  if (at_ < text_.size()) fail("expected the end of the text");
}

std::string json_quoted(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20) {
      quoted += {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

}  // namespace tern
