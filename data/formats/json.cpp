#include "tern/data/formats/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLevels = 64;
// Limits the memory that a hostile file can use: a key costs about 80 bytes
// while its object is open.
constexpr size_t kMaxTokens = 2'000'000;

// Parses a string, number, true, false or null; returns a discarded value for
// anything else.
Json parsed(std::string_view scalar) {
  return Json::parse(scalar, nullptr, /*allow_exceptions=*/false);
}

// Describes the token that was found instead of the expected one; empty for a
// bracket.
std::string not_this(std::string_view scalar) {
  return scalar.empty() ? "" : ", not " + printable(scalar);
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string path)
    : text_(text), path_(std::move(path)) {
  // JSON has no zero bytes, and nlohmann-json would treat one as the end.
  if (const size_t zero = text_.find('\0'); zero != text_.npos) {
    at_ = zero;
    fail("expected no zero byte");
  }
}

void JsonReader::fail(const std::string& reason) const {
  std::string keys;
  for (const Level& level : levels_) {
    if (level.keys.empty()) continue;  // an array, or no key yet
    const std::string key = printable(level.key);
    const bool is_last = &level == &levels_.back();
    if (is_last && reason.find(key) != reason.npos) continue;  // in `reason`
    keys += (keys.empty() ? " (in " : ", ") + key;
  }
  throw DataError(
      path_,
      "has an error in its JSON at byte " + std::to_string(at_) + keys +
          (keys.empty() ? ": " : "): ") + reason + ".");
}

// Moves at_ to the next character after white space and returns it; 0 at the
// end.
char JsonReader::next() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonReader::pass(char mark) {
  if (next() != mark) fail(std::string("expected '") + mark + "'");
  ++at_;
}

void JsonReader::pass_token(size_t bytes) {
  if (++tokens_ > kMaxTokens) {
    fail("expected at most 2,000,000 brackets, keys and values");
  }
  at_ += bytes;
}

void JsonReader::open(char bracket) {
  pass(bracket);
  if (levels_.size() == kMaxLevels) {
    fail("expected at most 64 levels of objects and arrays");
  }
  pass_token(0);
  levels_.emplace_back();
}

// Skips the comma before the next item of the innermost object or array. At the
// end skips the closing bracket and returns false.
bool JsonReader::next_item(char closing_bracket) {
  if (next() == closing_bracket) {
    pass_token(1);
    levels_.pop_back();
    return false;
  }
  if (!levels_.back().is_empty) pass(',');
  levels_.back().is_empty = false;
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!next_item('}')) return false;
  key = string();
  Level& level = levels_.back();
  level.key = key;
  if (!level.keys.insert(key).second) {
    fail("the object has the key " + printable(key) + " twice");
  }
  pass(':');
  return true;
}

// Returns the text of a string, number, true, false or null. Finds only its
// extent; nlohmann-json then checks and decodes it.
std::string_view JsonReader::next_scalar() {
  constexpr std::string_view kFirst = "\"-0123456789tfn";
  const char first = next();
  size_t end = at_;
  if (first == '"') {
    for (++end; end < text_.size() && text_[end] != '"'; ++end) {
      if (text_[end] == '\\') ++end;
    }
    ++end;
  } else if (kFirst.find(first) != kFirst.npos) {
    end = text_.find_first_of(",:\"[]{} \t\r\n", at_);
  }
  return std::string_view(text_).substr(at_, end - at_);
}

std::string JsonReader::string() {
  const std::string_view scalar = next_scalar();
  const Json value = parsed(scalar);
  if (!value.is_string()) fail("expected a quoted string" + not_this(scalar));
  pass_token(scalar.size());
  return value;
}

int64_t JsonReader::integer() {
  const std::string_view scalar = next_scalar();
  const Json value = parsed(scalar);
  if (!value.is_number_integer()) {
    fail("expected a whole number" + not_this(scalar));
  }
  // nlohmann-json reads a number without a minus sign as unsigned.
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    fail("expected a whole number of at most 63 bits");
  }
  pass_token(scalar.size());
  return value;
}

double JsonReader::number() {
  const std::string_view scalar = next_scalar();
  const Json value = parsed(scalar);
  if (!value.is_number() && !value.is_null()) {
    fail("expected a number that a double can hold" + not_this(scalar));
  }
  pass_token(scalar.size());
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  // Parsed as an integer, -0 would lose its sign.
  return scalar == "-0" ? -0.0 : value.get<double>();
}

bool JsonReader::boolean() {
  const std::string_view scalar = next_scalar();
  if (scalar != "true" && scalar != "false") {
    fail("expected true or false" + not_this(scalar));
  }
  pass_token(scalar.size());
  return scalar == "true";
}

bool JsonReader::is_null() {
  const std::string_view scalar = next_scalar();
  if (scalar != "null") return false;
  pass_token(scalar.size());
  return true;
}

void JsonReader::end() {
  if (next() != '\0') fail("expected the end of the text");
}

std::string json_quoted(std::string_view text) {
  return Json(text).dump(
      -1,
      ' ',
      /*ensure_ascii=*/false,
      Json::error_handler_t::replace);
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

// ---- Fields ----

namespace {

template <class T>  // bool or int64_t
std::string text_of(T value) {
  return Json(value).dump();
}
std::string text_of(double value) {
  return json_number(value);
}
std::string text_of(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}
std::string text_of(const std::string& value) {
  return json_quoted(value);
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    text += (text.empty() ? "" : ", ") + text_of(value);
  }
  return "[" + text + "]";
}

void read(JsonReader& json, bool& value) {
  value = json.boolean();
}
void read(JsonReader& json, int64_t& value) {
  value = json.integer();
}
void read(JsonReader& json, double& value) {
  value = json.number();
}
void read(JsonReader& json, std::optional<double>& value) {
  value = json.number();
  if (std::isnan(*value)) value.reset();
}
void read(JsonReader& json, std::string& value) {
  value = json.string();
}
template <class T>
void read(JsonReader& json, std::vector<T>& values) {
  values.clear();
  json.begin_array();
  while (json.next_element()) read(json, values.emplace_back());
}

}  // namespace

std::string to_json(const JsonFields& fields) {
  std::string text;
  for (const auto& [name, field] : fields) {
    text += (text.empty() ? "" : ", ") + json_quoted(name) + ": " +
            std::visit([](const auto* at) { return text_of(*at); }, field);
  }
  return "{" + text + "}";
}

void read_json(
    std::string_view text,
    const JsonFields& fields,
    const std::string& where) {
  JsonReader json(text, where);
  read_json(json, fields);
  json.end();
}

void read_json(JsonReader& json, const JsonFields& fields) {
  std::string name;
  json.begin_object();
  while (json.next_key(name)) {
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& item) {
          return item.first == name;
        });
    if (field == fields.end()) {
      std::string known;
      for (const auto& item : fields) {
        known += (known.empty() ? "" : ", ") + item.first;
      }
      json.fail(
          "the field " + printable(name) + " is unknown; expected one of " +
          known + ". A newer version may have written it");
    }
    std::visit([&](auto* at) { read(json, *at); }, field->second);
  }
}

}  // namespace tern
